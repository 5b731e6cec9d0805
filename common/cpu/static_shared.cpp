// Static shared memory: __shared__ is `static thread_local` here, so the variables of all kernels
// lie among the thread-local variables of the host thread that runs the block. Which of those are
// shared memory, the program's table of symbols tells: a variable inside a function has a mangled
// name that begins with _ZZ. Those of the C++ library and of this backend are no kernel's.
#include "common/cpu/static_shared.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

namespace cpu {

namespace {

// The program's file, mapped while this lives. Empty where it can't be read.
class ProgramFile {
 public:
  ProgramFile() {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status = {};
    if (file >= 0 && fstat(file, &status) == 0) {
      const auto bytes = static_cast<std::size_t>(status.st_size);
      void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
      if (memory != MAP_FAILED) begin_ = static_cast<const char*>(memory), bytes_ = bytes;
    }
    if (file >= 0) close(file);
  }
  ~ProgramFile() {
    if (bytes_ > 0) munmap(const_cast<char*>(begin_), bytes_);
  }
  ProgramFile(const ProgramFile&) = delete;
  ProgramFile& operator=(const ProgramFile&) = delete;

  // `count` objects at `offset`; null where the file is too short for them.
  template <class T>
  const T* at(std::size_t offset, std::size_t count) const {
    if (offset > bytes_ || count > (bytes_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(begin_ + offset);
  }

 private:
  const char* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

bool is_shared_name(std::string_view name) {
  const auto begins = [&](std::string_view prefix) {
    return name.substr(0, prefix.size()) == prefix;
  };
  return begins("_ZZ") && !begins("_ZZN3cpu") && !begins("_ZZSt") && !begins("_ZZNSt") &&
         !begins("_ZZNKSt");
}

std::vector<SharedVariable> read_shared_variables() {
  std::vector<SharedVariable> variables;
  const ProgramFile file;
  const auto* header = file.at<ElfW(Ehdr)>(0, 1);
  if (header == nullptr) return variables;
  const auto* sections = file.at<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
  for (std::size_t s = 0; sections != nullptr && s < header->e_shnum; ++s) {
    const ElfW(Shdr)& table = sections[s];
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= header->e_shnum) continue;
    const std::size_t count = table.sh_size / sizeof(ElfW(Sym));
    const ElfW(Shdr)& names = sections[table.sh_link];
    const auto* symbols = file.at<ElfW(Sym)>(table.sh_offset, count);
    const char* texts = file.at<char>(names.sh_offset, names.sh_size);
    if (symbols == nullptr || texts == nullptr) continue;
    for (const ElfW(Sym)* symbol = symbols; symbol != symbols + count; ++symbol) {
      if ((symbol->st_info & 0xF) != STT_TLS || symbol->st_shndx == SHN_UNDEF) continue;
      if (symbol->st_name >= names.sh_size) continue;
      const char* name = texts + symbol->st_name;
      const std::size_t length = strnlen(name, names.sh_size - symbol->st_name);
      if (is_shared_name({name, length})) variables.push_back({symbol->st_value, symbol->st_size});
    }
  }
  return variables;
}

}  // namespace

const std::vector<SharedVariable>& shared_variables() {
  static const auto& variables = *new std::vector<SharedVariable>(read_shared_variables());
  return variables;
}

char* thread_local_variables() {
  void* variables = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* program, std::size_t, void* result) {
        *static_cast<void**>(result) = program->dlpi_tls_data;
        return 1;  // the first one is the program itself, the only one that is asked about
      },
      &variables);
  return static_cast<char*>(variables);
}

}  // namespace cpu
