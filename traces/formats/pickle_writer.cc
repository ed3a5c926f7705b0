// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/pickle_writer.h"

#include <limits>

namespace tidemark {
namespace {

constexpr std::size_t kBatch = 1000;

}  // namespace

PickleWriter::PickleWriter(std::string& out) : out_(out) { out_ += "\x80\x02"; }

void PickleWriter::BeginDict() { out_ += "}("; }
void PickleWriter::EndDict() { out_ += 'u'; }

PickleWriter::List::List(PickleWriter& writer) : writer_(writer) { writer_.out_ += ']'; }

void PickleWriter::List::Item() {
  if (items_ % kBatch == 0) {
    writer_.out_ += items_ == 0 ? "(" : "e(";
  }
  ++items_;
}

void PickleWriter::List::End() {
  if (items_ > 0) {
    writer_.out_ += 'e';
  }
}

void PickleWriter::Fixed(std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    out_ += static_cast<char>(value >> (8 * i) & 0xffU);
  }
}

void PickleWriter::Text(std::string_view text) {
  if (const auto found = texts_.find(text); found != texts_.end()) {
    return Get(found->second);
  }
  out_ += 'X';
  Fixed(text.size(), 4);
  out_ += text;
  texts_.emplace(text, Put());
}

void PickleWriter::Whole(std::int64_t number) {
  const auto bits = static_cast<std::uint64_t>(number);
  if (number >= 0 && number <= 0xff) {
    out_ += 'K';
    return Fixed(bits, 1);
  }
  if (number >= std::numeric_limits<std::int32_t>::min() && number <= std::numeric_limits<std::int32_t>::max()) {
    out_ += 'J';
    return Fixed(bits, 4);
  }
  out_ += '\x8a';
  std::size_t size = 5;  // the fewest bytes whose highest bit is the sign
  while (size < 8 && number >> (8 * size - 1) != (number < 0 ? -1 : 0)) {
    ++size;
  }
  Fixed(size, 1);
  Fixed(bits, size);
}

void PickleWriter::Boolean(bool value) { out_ += value ? '\x88' : '\x89'; }

void PickleWriter::Pair(std::int64_t first, std::int64_t second) {
  Whole(first);
  Whole(second);
  out_ += '\x86';
}

std::uint32_t PickleWriter::Put() {
  out_ += remembered_ <= 0xff ? 'q' : 'r';
  Fixed(remembered_, remembered_ <= 0xff ? 1 : 4);
  return remembered_++;
}

void PickleWriter::Get(std::uint32_t remembered) {
  out_ += remembered <= 0xff ? 'h' : 'j';
  Fixed(remembered, remembered <= 0xff ? 1 : 4);
}

void PickleWriter::End() { out_ += '.'; }

}  // namespace tidemark
