// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tidemark {

void Fail(std::string_view promise, const char* file, int line) {
  std::fprintf(stderr, "tidemark: internal fault at %s:%d: %.*s does not hold\n", file, line,
               static_cast<int>(promise.size()), promise.data());
  std::fprintf(stderr, "hint: this is a bug in tidemark, not in your input; please report it\n");
  std::fflush(stderr);
  std::_Exit(70);
}

}  // namespace tidemark
