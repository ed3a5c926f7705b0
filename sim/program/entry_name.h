// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidemark {

/// What an entry of a program's table is called: some tables hold names only.
inline const std::string& NameOf(const std::string& name) { return name; }
template <class Entry>
const std::string& NameOf(const Entry& entry) {
  return entry.name;
}

}  // namespace tidemark
