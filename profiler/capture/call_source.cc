// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/call_source.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace tidemark {
namespace {

constexpr std::size_t kDeepest = 48;  // callback, CUPTI and driver are some ten frames

bool IsDriver(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);  // all of it where there is no '/'
  return file.starts_with("libcuda.so") || file.starts_with("libcupti.so");
}

}  // namespace

std::string CallerOfDriver(std::span<const std::string> libraries) {
  const auto driver = std::find_if(libraries.begin(), libraries.end(), IsDriver);
  const auto caller = std::find_if_not(driver, libraries.end(), IsDriver);
  return caller == libraries.end() ? "" : *caller;
}

std::string CallerOfDriver() {
  std::array<void*, kDeepest> frames{};
  const int depth = backtrace(frames.data(), static_cast<int>(frames.size()));
  std::vector<std::string> libraries;
  for (int i = 0; i < depth; ++i) {
    Dl_info about{};
    const bool known = dladdr(frames[static_cast<std::size_t>(i)], &about) != 0 && about.dli_fname != nullptr;
    libraries.emplace_back(known ? about.dli_fname : "");
  }
  return CallerOfDriver(libraries);
}

}  // namespace tidemark
