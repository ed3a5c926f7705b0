// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"

namespace tidemark {

/// The text of a file in tests/jobs/.
inline std::string SampleText(const std::string& file) {
  const Result<std::string> text = ReadTextFile(std::string(TIDEMARK_TESTS) + "/jobs/" + file);
  EXPECT_TRUE(text.ok()) << file;
  return text.ok() ? *text : std::string();
}

/// The same with another text in place of `line`, which must be in it.
inline std::string SampleText(const std::string& file, const std::string& line, const std::string& instead) {
  std::string text = SampleText(file);
  const std::size_t at = text.find(line);
  if (at == std::string::npos) {
    ADD_FAILURE() << file << " has no '" << line << "'";
    return {};
  }
  return text.replace(at, line.size(), instead);
}

}  // namespace tidemark
