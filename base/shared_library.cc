// SPDX-License-Identifier: Apache-2.0
#include "base/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tidemark {

SharedLibrary SharedLibrary::OfCuda(const std::string& file, int major) {
  SharedLibrary found;
  for (const std::string& folder :
       {std::string(), std::string("/usr/local/cuda/lib64/"), std::string("/usr/local/cuda/extras/CUPTI/lib64/"),
        fmt::format("/usr/local/cuda-{}/lib64/", major)}) {
    found.library_ =
        found.library_ == nullptr ? dlopen((folder + file).c_str(), RTLD_NOW | RTLD_LOCAL) : found.library_;
  }
  return found;
}

SharedLibrary SharedLibrary::OfSystem(const std::string& file) {
  SharedLibrary found;
  found.library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  return found;
}

std::string SharedLibrary::LoadersWords() {
  const char* const words = dlerror();
  return words == nullptr ? "" : words;
}

void* SharedLibrary::Symbol(const char* name) const { return dlsym(library_, name); }

}  // namespace tidemark
