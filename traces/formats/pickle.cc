// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/pickle.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tidemark {
namespace {

using Kind = PickleValue::Kind;

/// The machine that a pickle is a program for. Each opcode is a function that gives false, and says why in `error_`,
/// where the program is none that writes plain data.
class PickleReader {
 public:
  PickleReader(std::string_view bytes, PickleHeap& heap, PickleListener& listener)
      : bytes_(bytes), heap_(heap), listener_(listener), most_values_(bytes.size() / 2 + 65536) {}

  Result<PickleValue> Read() {
    const Table& table = Opcodes();
    while (!stopped_) {
      opcode_at_ = at_;
      const std::optional<std::string_view> opcode = Take(1);
      if (!opcode || !(this->*table[static_cast<unsigned char>((*opcode)[0])])()) {
        return *error_;
      }
    }
    return stack_.back();
  }

 private:
  using Step = bool (PickleReader::*)();
  using Table = std::array<Step, 256>;

  static const Table& Opcodes() {
    static const Table table = [] {
      Table made;
      made.fill(&PickleReader::Unknown);
      for (const char code : {'c', 'i', 'o', 'R', 'b', 'P', 'Q', '\x81', '\x82', '\x83', '\x84', '\x92', '\x93'}) {
        made[static_cast<unsigned char>(code)] = &PickleReader::Executable;
      }
      const auto set = [&](unsigned char code, Step step) { made[code] = step; };
      set(0x80, &PickleReader::Protocol), set(0x95, &PickleReader::Frame), set('.', &PickleReader::Stop);
      set('(', &PickleReader::Mark), set('}', &PickleReader::Empty<Kind::dict>);
      set(']', &PickleReader::Empty<Kind::list>), set(')', &PickleReader::Empty<Kind::tuple>);
      set('N', &PickleReader::Constant<Kind::none, 0>), set(0x88, &PickleReader::Constant<Kind::boolean, 1>);
      set(0x89, &PickleReader::Constant<Kind::boolean, 0>), set('G', &PickleReader::Real);
      set('K', &PickleReader::Unsigned<1>), set('M', &PickleReader::Unsigned<2>), set('J', &PickleReader::Int32);
      set(0x8a, &PickleReader::Long<1>), set(0x8b, &PickleReader::Long<4>);
      set(0x8c, &PickleReader::Sized<Kind::text, 1>), set('X', &PickleReader::Sized<Kind::text, 4>);
      set(0x8d, &PickleReader::Sized<Kind::text, 8>), set('C', &PickleReader::Sized<Kind::opaque, 1>);
      set('B', &PickleReader::Sized<Kind::opaque, 4>), set(0x8e, &PickleReader::Sized<Kind::opaque, 8>);
      set('U', &PickleReader::Sized<Kind::opaque, 1>), set('T', &PickleReader::Sized<Kind::opaque, 4>);
      set(0x96, &PickleReader::Sized<Kind::opaque, 8>), set(0x94, &PickleReader::Memoize);
      set('q', &PickleReader::Put<1>), set('r', &PickleReader::Put<4>);
      set('h', &PickleReader::Get<1>), set('j', &PickleReader::Get<4>);
      set('a', &PickleReader::Append), set('e', &PickleReader::Appends);
      set('s', &PickleReader::SetItem), set('u', &PickleReader::SetItems), set('t', &PickleReader::Tuple);
      set(0x85, &PickleReader::SmallTuple<1>), set(0x86, &PickleReader::SmallTuple<2>);
      set(0x87, &PickleReader::SmallTuple<3>);
      return made;
    }();
    return table;
  }

  bool Fail(std::string message, std::string hint = {}) {
    error_ =
        BadInput(fmt::format("{} (byte {})", message, Grouped(static_cast<std::int64_t>(opcode_at_))), std::move(hint));
    return false;
  }

  std::optional<std::string_view> Take(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      Fail(fmt::format("the pickle ends within a value, {} bytes after its beginning: the file is cut off or damaged",
                       Grouped(static_cast<std::int64_t>(bytes_.size()))));
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }

  /// An unsigned number of `size` bytes, the lowest first.
  std::optional<std::uint64_t> Number(std::size_t size) {
    const std::optional<std::string_view> taken = Take(size);
    if (!taken) {
      return {};
    }
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) {
      value = value << 8U | static_cast<unsigned char>((*taken)[i]);
    }
    return value;
  }

  bool Unknown() {
    return Fail(fmt::format("the byte 0x{:02x} is no instruction of a pickle of plain data",
                            static_cast<unsigned char>(bytes_[opcode_at_])),
                "pickles of protocols 2 to 5 can be read; protocols 0 and 1 are of Python 2");
  }

  bool Executable() {
    return Fail(
        fmt::format("the pickle wants to name, build or call an object (instruction 0x{:02x}), which is never done; "
                    "plain lists, dictionaries, text and numbers were expected",
                    static_cast<unsigned char>(bytes_[opcode_at_])),
        "pickle the snapshot itself, with torch.cuda.memory._dump_snapshot(), and no other objects with it");
  }

  bool Protocol() {
    const std::optional<std::uint64_t> version = Number(1);
    return version &&
           ((*version >= 2 && *version <= 5) ||
            Fail(fmt::format("a pickle of protocol 2 to 5 was expected, this one is of protocol {}", *version)));
  }

  bool Frame() { return Number(8).has_value(); }

  bool Stop() {
    stopped_ = true;
    return !stack_.empty() || Fail("the pickle holds no value");
  }

  bool Push(PickleValue value) {
    if (++values_ > most_values_) {
      return Fail("the pickle holds more values than a snapshot of its size can have");
    }
    stack_.push_back(value);
    return true;
  }

  bool Mark() {
    if (marks_.size() >= most_values_) {
      return Fail("the pickle is nested deeper than a snapshot can be");
    }
    marks_.push_back(stack_.size());
    return true;
  }

  template <Kind kind>
  bool Empty() {
    return Push(heap_.NewContainer(kind));
  }

  template <Kind kind, std::int64_t number>
  bool Constant() {
    PickleValue value = PickleValue::Integer(number);
    value.kind = kind;
    return Push(value);
  }

  bool Real() {
    const std::optional<std::string_view> taken = Take(8);
    if (!taken) {
      return false;
    }
    std::uint64_t bits = 0;
    for (const char c : *taken) {  // the one number of a pickle whose highest byte comes first
      bits = bits << 8U | static_cast<unsigned char>(c);
    }
    PickleValue value;
    value.kind = Kind::real;
    value.real = std::bit_cast<double>(bits);
    return Push(value);
  }

  template <std::size_t size>
  bool Unsigned() {
    const std::optional<std::uint64_t> value = Number(size);
    return value && Push(PickleValue::Integer(static_cast<std::int64_t>(*value)));
  }

  bool Int32() {
    const std::optional<std::uint64_t> value = Number(4);
    return value && Push(PickleValue::Integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(*value))));
  }

  template <std::size_t size_of_size>
  bool Long() {
    const std::optional<std::uint64_t> size = Number(size_of_size);
    const std::optional<std::string_view> taken = size ? Take(*size) : std::nullopt;
    if (!taken) {
      return false;
    }
    if (taken->size() > 8) {
      PickleValue beyond;
      beyond.kind = Kind::opaque;
      return Push(beyond);
    }
    const bool negative = !taken->empty() && static_cast<unsigned char>(taken->back()) >= 0x80;
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = taken->size(); i-- > 0;) {
      value = value << 8U | static_cast<unsigned char>((*taken)[i]);
    }
    return Push(PickleValue::Integer(static_cast<std::int64_t>(value)));
  }

  template <Kind kind, std::size_t size_of_size>
  bool Sized() {
    const std::optional<std::uint64_t> size = Number(size_of_size);
    const std::optional<std::string_view> taken = size ? Take(*size) : std::nullopt;
    if (!taken) {
      return false;
    }
    if (taken->size() > std::numeric_limits<std::uint32_t>::max()) {
      return Fail("a text of more than 4 GiB is nothing that a snapshot has");
    }
    PickleValue value;
    value.kind = kind;
    value.size = static_cast<std::uint32_t>(taken->size());
    value.data = taken->data();
    return Push(value);
  }

  bool Memoize() { return Remember(memo_.size()); }

  template <std::size_t size>
  bool Put() {
    const std::optional<std::uint64_t> index = Number(size);
    return index && Remember(*index);
  }

  bool Remember(std::uint64_t index) {
    if (stack_.empty()) {
      return Fail("the pickle remembers a value before there is one");
    }
    if (index > bytes_.size()) {  // writers count from 0, and a value takes a byte at least
      return Fail(fmt::format("the pickle remembers value {}, which is more than a file of its size has",
                              Grouped(static_cast<std::int64_t>(index))));
    }
    if (index >= memo_.size()) {
      PickleValue never;
      never.kind = Kind::opaque;
      memo_.resize(index + 1, never);
    }
    memo_[index] = stack_.back();
    return true;
  }

  template <std::size_t size>
  bool Get() {
    const std::optional<std::uint64_t> index = Number(size);
    return index && (*index < memo_.size() ? Push(memo_[*index])
                                           : Fail("the pickle asks for a value that it has not remembered"));
  }

  /// Takes what lies above the last mark; empty where there is no mark.
  std::optional<std::size_t> PopMark() {
    if (marks_.empty() || marks_.back() > stack_.size()) {
      Fail("the pickle takes values from its stack that are not there");
      return {};
    }
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  bool Append() { return AddFrom(Kind::list, stack_.empty() ? 0 : stack_.size() - 1, 1); }
  bool SetItem() { return AddFrom(Kind::dict, stack_.size() < 2 ? 0 : stack_.size() - 2, 2); }
  bool Appends() {
    const std::optional<std::size_t> mark = PopMark();
    return mark && AddFrom(Kind::list, *mark, 1);
  }
  bool SetItems() {
    const std::optional<std::size_t> mark = PopMark();
    return mark && AddFrom(Kind::dict, *mark, 2);
  }

  /// Puts the values from `first` on into the container below them.
  bool AddFrom(Kind kind, std::size_t first, std::size_t step) {
    if (first == 0 || stack_[first - 1].kind != kind || (stack_.size() - first) % step != 0 ||
        (!marks_.empty() && marks_.back() > first - 1)) {
      return Fail("the pickle adds values to something that is no list or dictionary");
    }
    for (std::size_t i = first; i < stack_.size(); ++i) {
      if (!Complete(stack_[i])) {
        return false;
      }
    }
    std::vector<PickleValue>* body = heap_.ItemsToAddTo(stack_[first - 1]);
    if (body == nullptr) {
      return Fail("the pickle adds to a value that was complete already, as no writer of snapshots does");
    }
    body->insert(body->end(), stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
    stack_.resize(first);
    return true;
  }

  template <std::size_t size>
  bool SmallTuple() {
    return stack_.size() >= size ? MakeTuple(stack_.size() - size)
                                 : Fail("the pickle takes values from its stack that are not there");
  }
  bool Tuple() {
    const std::optional<std::size_t> mark = PopMark();
    return mark && MakeTuple(*mark);
  }
  bool MakeTuple(std::size_t first) {
    if (!marks_.empty() && marks_.back() > first) {
      return Fail("the pickle takes values from its stack that are not there");
    }
    for (std::size_t i = first; i < stack_.size(); ++i) {
      if (!Complete(stack_[i])) {
        return false;
      }
    }
    const std::vector<PickleValue> items(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
    stack_.resize(first);
    if (!Empty<Kind::tuple>()) {
      return false;
    }
    if (!items.empty()) {
      *heap_.ItemsToAddTo(stack_.back()) = items;
    }
    return true;
  }

  /// Shows a container to the listener the first time, and leaves in `value` what stands in its place.
  bool Complete(PickleValue& value) {
    if (!value.is_container()) {
      return true;
    }
    if (heap_.FirstTime(value)) {
      const Result<PickleValue> made = listener_.Finish(heap_, value);
      if (!made) {
        error_ = made.error();
        return false;
      }
      if (!made->is_container()) {
        heap_.Replace(value, *made);
      }
    }
    value = heap_.Resolve(value);
    return true;
  }

  std::string_view bytes_;
  PickleHeap& heap_;
  PickleListener& listener_;
  std::size_t at_ = 0, opcode_at_ = 0;
  std::size_t values_ = 0, most_values_;
  std::vector<PickleValue> stack_, memo_;
  std::vector<std::size_t> marks_;
  std::optional<Error> error_;
  bool stopped_ = false;
};

}  // namespace

bool LooksLikePickle(std::string_view head) {
  if (head.size() < 3 || head[0] != '\x80' || head[1] < 2 || head[1] > 5) {
    return false;
  }
  constexpr std::size_t kFrame = 9;
  const std::size_t first = head[2] == '\x95' ? 2 + kFrame : 2;
  constexpr std::string_view kFirst = "}](c\x8c";  // data, or a name, which ReadPickle refuses with a better sentence
  return first < head.size() && kFirst.find(head[first]) != std::string_view::npos;
}

Result<PickleValue> ReadPickle(std::string_view bytes, PickleHeap& heap, PickleListener& listener) {
  return PickleReader(bytes, heap, listener).Read();
}

}  // namespace tidemark
