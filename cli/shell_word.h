// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidemark {

/// A word as a shell takes it: quoted where it needs that.
std::string ShellWord(const std::string& word);

}  // namespace tidemark
