// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace tidemark {

/// Writes plain data as a pickle of protocol 2, with the opcodes that PyTorch's viewer reads (`unpickle` in its
/// MemoryViz.js): texts and shared values are remembered (BINPUT, BINGET) and so written once.
class PickleWriter {
 public:
  explicit PickleWriter(std::string& out);

  /// key, value, key, value, ... between them.
  void BeginDict();
  void EndDict();

  /// A list grows in batches of a thousand, as Python writes it: the viewer cannot take a million at once.
  /// Call Item before each of them.
  class List {
   public:
    explicit List(PickleWriter& writer);
    void Item();
    void End();

   private:
    PickleWriter& writer_;
    std::size_t items_ = 0;
  };

  void Text(std::string_view text);
  void Whole(std::int64_t number);
  void Boolean(bool value);
  void Pair(std::int64_t first, std::int64_t second);

  /// Remembers the value that was written last.
  std::uint32_t Put();
  void Get(std::uint32_t remembered);

  void End();

 private:
  friend class List;
  void Fixed(std::uint64_t value, std::size_t size);

  std::string& out_;
  std::map<std::string, std::uint32_t, std::less<>> texts_;
  std::uint32_t remembered_ = 0;
};

}  // namespace tidemark
