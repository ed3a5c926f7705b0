// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "sim/program/text.h"

/// Any text is either refused with a sentence, or becomes a program whose text is a fixed point of parsing and
/// printing.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const tidemark::Result<tidemark::Program> program = tidemark::ParseProgram(text);
  if (!program) {
    TIDEMARK_CHECK(!program.error().message.empty());
    return 0;
  }
  const std::string printed = tidemark::Print(*program);
  const tidemark::Result<tidemark::Program> again = tidemark::ParseProgram(printed);
  TIDEMARK_CHECK(again.ok());
  TIDEMARK_CHECK(tidemark::Print(*again) == printed);
  return 0;
}
