// The instructions of sm_80 that feed and run its matrix units, as functions.
//
//   cp.async     global -> shared memory, 16 bytes; the thread goes on without waiting
//   ldmatrix     shared memory -> fragments, four 8x8 matrices at a time, transposed on request
//   mma.sync     C (16, 8) += A (16, 16) · B (16, 8) of 16-bit numbers; of tf32 half as deep
//
// PTX defines them on the 32 lanes of a warp and says which lane holds what (PTX ISA, sections
// "Warp-level matrix instructions" and "Asynchronous copy"). On the CPU backend the functions do in
// software what each instruction does, for every 32 lanes of a wave of 32 or 64, so that the same
// kernels run there. AMD has none of them.
//
// A register holds 4 bytes of a row of A or of a column of B, a word: two 16-bit numbers or one
// tf32. Counted in words, the fragments of all three types are the same:
//
//   A, 16 rows of 8 words   lane l: a[0] row l/4,     word l%4      a[2] row l/4,     word l%4 + 4
//                                   a[1] row l/4 + 8, word l%4      a[3] row l/4 + 8, word l%4 + 4
//   B, 8 columns of 8 words lane l: b[0] column l/4, word l%4       b[1] column l/4, word l%4 + 4
//   C, 16 rows, 8 columns   lane l: c[0], c[1] row l/4, columns 2 (l%4) and 2 (l%4) + 1
//                                   c[2], c[3] row l/4 + 8, the same columns
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/gpu.h"
#include "common/half.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// Device code for older devices has none of the instructions: kernels leave their bodies out.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr bool kHaveMma = false;
#else
inline constexpr bool kHaveMma = true;
#endif

inline constexpr int kLanes = 32;

// Which of the 32 lanes is this thread? Blocks are one-dimensional.
__device__ inline int warp_lane() { return static_cast<int>(threadIdx.x % kLanes); }

#if defined(GPU_BACKEND_CUDA)

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Four 8x8 matrices of 16-bit numbers (8x4 of words) in shared memory: lane 8 m + r says where row
// r of matrix m begins, aligned to 16 bytes. Lane l gets word l%4 of row l/4 of each.
__device__ inline void load_matrices(unsigned (&words)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row)));
}
// The same of the transposed matrices: lane l gets the numbers 2 (l%4), 2 (l%4) + 1 of column l/4.
__device__ inline void load_transposed(unsigned (&words)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row)));
}

// c += a b.
template <class T>
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  if constexpr (std::is_same_v<T, gpu::half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else if constexpr (std::is_same_v<T, gpu::bfloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies from global to shared memory that a thread has asked for and does not wait for.
struct AsyncCopies {
  // Begins the copy of 16 bytes, aligned to 16; where not `inside`, of zeros: `from` is not read.
  __device__ void begin(uint4* to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(inside ? 16 : 0));
  }
  // What was begun since the last end_group() is one group.
  __device__ void end_group() { asm volatile("cp.async.commit_group;"); }
  // Waits until this thread's copies have arrived, but for those of its last kLate groups.
  template <int kLate>
  __device__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLate) : "memory");
  }
};

#else

inline constexpr int kMostThreads = 1024;

// The thread that is lane `lane` of the same 32.
__device__ inline int thread_of_lane(int lane) { return gpu::thread_rank() - warp_lane() + lane; }

// Every lane leaves in `of_thread` what the others may want of it.
template <class Value>
__device__ inline void exchange(Value (&of_thread)[kMostThreads], Value value) {
  gpu::wave_sync();  // no lane needs what the last exchange left
  of_thread[gpu::thread_rank()] = value;
  gpu::wave_sync();  // every lane's value is there
}

__device__ inline const uint4* matrix_row(int matrix, int row, const uint4* (&rows)[kMostThreads]) {
  return rows[thread_of_lane(8 * matrix + row)];
}
__device__ inline void load_matrices(unsigned (&words)[4], const uint4* row) {
  __shared__ const uint4* rows[kMostThreads];
  exchange(rows, row);
  const int lane = warp_lane();
  for (int matrix = 0; matrix < 4; ++matrix) {
    const uint4* from = matrix_row(matrix, lane / 4, rows);
    memcpy(&words[matrix], reinterpret_cast<const unsigned*>(from) + lane % 4, sizeof(unsigned));
  }
}
__device__ inline void load_transposed(unsigned (&words)[4], const uint4* row) {
  __shared__ const uint4* rows[kMostThreads];
  exchange(rows, row);
  const int lane = warp_lane();
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned short numbers[2];
    for (int i = 0; i < 2; ++i) {
      const uint4* from = matrix_row(matrix, 2 * (lane % 4) + i, rows);
      memcpy(&numbers[i], reinterpret_cast<const unsigned short*>(from) + lane / 4, 2);
    }
    memcpy(&words[matrix], numbers, sizeof numbers);
  }
}

// sum + the product of two words. Of a tf32, as NVIDIA's units do, it ignores the last 13 bits.
template <class T>
__device__ inline float multiply_words(unsigned a, unsigned b, float sum) {
  if (sizeof(T) == 4) a &= ~0x1FFFu, b &= ~0x1FFFu;
  T numbers_a[4 / sizeof(T)], numbers_b[4 / sizeof(T)];
  memcpy(numbers_a, &a, sizeof a);
  memcpy(numbers_b, &b, sizeof b);
  for (size_t i = 0; i < 4 / sizeof(T); ++i)
    sum += gpu::to_float(numbers_a[i]) * gpu::to_float(numbers_b[i]);
  return sum;
}

// What one lane holds of A and B.
struct Operands {
  unsigned a[4], b[2];
};
template <class T>
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  __shared__ Operands operands[kMostThreads];
  exchange(operands, Operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const int lane = warp_lane();
  for (int word = 0; word < 8; ++word) {
    const Operands& of_row = operands[thread_of_lane(lane / 4 * 4 + word % 4)];
    for (int column = 0; column < 2; ++column) {
      const Operands& of_column =
          operands[thread_of_lane((2 * (lane % 4) + column) * 4 + word % 4)];
      const unsigned b_word = of_column.b[word / 4];
      for (int row = 0; row < 2; ++row) {
        float& sum = c[2 * row + column];
        sum = multiply_words<T>(of_row.a[word / 4 * 2 + row], b_word, sum);
      }
    }
  }
}

// Copies arrive as late as they may, when they are waited for: a kernel that waits for too few of
// them finds what stood there before.
struct AsyncCopies {
  struct Copy {
    uint4* to;
    const void* from;
    bool inside;
    int group;
  };
  std::vector<Copy> begun;
  int groups = 0;

  void begin(uint4* to, const void* from, bool inside) {
    begun.push_back({to, from, inside, groups});
  }
  void end_group() { ++groups; }
  template <int kLate>
  void wait() {
    size_t arrived = 0;
    for (; arrived < begun.size() && begun[arrived].group < groups - kLate; ++arrived) {
      const Copy& copy = begun[arrived];
      *copy.to = uint4{0, 0, 0, 0};
      if (copy.inside) memcpy(copy.to, copy.from, sizeof(uint4));
    }
    begun.erase(begun.begin(), begun.begin() + static_cast<std::ptrdiff_t>(arrived));
  }
};

#endif

}  // namespace gemm_mixed

#endif
