// Tests of what depends on the environment.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

// Takes an environment variable away while it lives, and puts it back as it was.
class KeptVariable {
 public:
  explicit KeptVariable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) before_ = value;
    unsetenv(name);
  }
  ~KeptVariable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  KeptVariable(const KeptVariable&) = delete;
  KeptVariable& operator=(const KeptVariable&) = delete;

  void set(const std::string& value) { setenv(name_, value.c_str(), 1); }
  std::string value() const {
    const char* value = std::getenv(name_);
    return value == nullptr ? "unset" : value;
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};
