// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidemark {

/// A shared library that is looked for at run time, so that a program starts where it is not. One that was found stays
/// until the process ends, whatever becomes of this.
class SharedLibrary {
 public:
  /// A library of the CUDA toolkit: in the loader's path ("libcupti.so.13"), then where toolkits of this major version
  /// are usually put.
  static SharedLibrary OfCuda(const std::string& file, int major);
  /// Any other, where the loader finds it.
  static SharedLibrary OfSystem(const std::string& file);

  bool is_there() const { return library_ != nullptr; }
  /// False where it has no such function.
  template <class Function>
  bool Find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(Symbol(name));
    return function != nullptr;
  }
  /// What the loader says of the last thing that it did not find.
  static std::string LoadersWords();

 private:
  void* Symbol(const char* name) const;

  void* library_ = nullptr;
};

}  // namespace tidemark
