// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

// Pickles are written here byte by byte, as CPython's Lib/pickletools.py describes the opcodes.

namespace tidemark::pickle_test {
namespace {

using testing::HasSubstr;
using Kind = PickleValue::Kind;
using namespace std::string_literals;

/// Replaces nothing, and counts what it is shown.
class Watcher : public PickleListener {
 public:
  Result<PickleValue> Finish(const PickleHeap&, PickleValue container) override {
    ++shown;
    return container;
  }
  int shown = 0;
};

/// "[1, 'a', {2: None}]", to compare with what Python would show.
std::string Shown(const PickleHeap& heap, PickleValue value) {
  switch (value.kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.number != 0 ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.number);
    case Kind::real:
      return std::to_string(value.real);
    case Kind::text:
      return "'" + std::string(value.text()) + "'";
    case Kind::opaque:
      return "?";
    case Kind::record:
      return "record";
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
      break;
  }
  std::string inner;
  for (const PickleValue& item : heap.Items(value)) {
    inner += (inner.empty() ? "" : ", ") + Shown(heap, item);
  }
  return (value.kind == Kind::list    ? "["
          : value.kind == Kind::tuple ? "("
                                      : "{") +
         inner +
         (value.kind == Kind::list    ? "]"
          : value.kind == Kind::tuple ? ")"
                                      : "}");
}

std::string Read(const std::string& bytes) {
  PickleHeap heap;
  Watcher watcher;
  const Result<PickleValue> value = ReadPickle(bytes, heap, watcher);
  return value ? Shown(heap, *value) : "error: " + value.error().message;
}

TEST(Pickle, readsWholeNumbersOfEveryWidth) {
  EXPECT_EQ(Read("\x80\x02K\xff."s), "255");
  EXPECT_EQ(Read("\x80\x02M\xff\xff."s), "65535");
  EXPECT_EQ(Read("\x80\x02J\xff\xff\xff\xff."s), "-1");
  // The examples of pickletools' decode_long.
  EXPECT_EQ(Read("\x80\x02\x8a\x00."s), "0");
  EXPECT_EQ(Read("\x80\x02\x8a\x02\xff\x00."s), "255");
  EXPECT_EQ(Read("\x80\x02\x8a\x02\xff\x7f."s), "32767");
  EXPECT_EQ(Read("\x80\x02\x8a\x02\x00\xff."s), "-256");
  EXPECT_EQ(Read("\x80\x02\x8a\x01\x80."s), "-128");
  EXPECT_EQ(Read("\x80\x02\x8b\x01\x00\x00\x00\x7f."s), "127");
  EXPECT_EQ(Read("\x80\x02\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."s), "9223372036854775807");
  EXPECT_EQ(Read("\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."s), "?");
}

TEST(Pickle, readsTextNumbersAndConstants) {
  EXPECT_EQ(Read("\x80\x04\x8c\x02hi."s), "'hi'");
  EXPECT_EQ(Read("\x80\x02X\x02\x00\x00\x00hi."s), "'hi'");
  EXPECT_EQ(Read("\x80\x04\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi."s), "'hi'");
  EXPECT_EQ(Read("\x80\x04"
                 "C\x02hi."s),
            "?");
  EXPECT_EQ(Read("\x80\x02G\x3f\xf8\x00\x00\x00\x00\x00\x00."s), "1.500000");  // 0x3ff8000000000000 is 1.5
  EXPECT_EQ(Read("\x80\x02N."s), "None");
  EXPECT_EQ(Read("\x80\x02\x88\x89\x86."s), "(True, False)");
}

TEST(Pickle, readsContainersAsTheyGrow) {
  EXPECT_EQ(Read("\x80\x02](K\x01K\x02"
                 "eK\x03"
                 "a."s),
            "[1, 2, 3]");
  EXPECT_EQ(Read("\x80\x02}X\x01\x00\x00\x00"
                 "aK\x01sX\x01\x00\x00\x00"
                 "b]s."s),
            "{'a', 1, 'b', []}");
  EXPECT_EQ(Read("\x80\x04\x95\x09\x00\x00\x00\x00\x00\x00\x00}\x94(K\x01K\x02K\x03K\x04u."s), "{1, 2, 3, 4}");
  EXPECT_EQ(Read("\x80\x02(K\x01\x85K\x01K\x02\x86K\x01K\x02K\x03\x87t."s), "((1), (1, 2), (1, 2, 3))");
  EXPECT_EQ(Read("\x80\x02)."s), "()");
}

TEST(Pickle, remembersValuesUnderEveryKindOfNumber) {
  EXPECT_EQ(Read("\x80\x02](K\x07q\x05h\x05j\x05\x00\x00\x00"
                 "e."s),
            "[7, 7, 7]");
  EXPECT_EQ(Read("\x80\x02](K\x07r\x05\x00\x00\x00h\x05"
                 "e."s),
            "[7, 7]");
  EXPECT_EQ(Read("\x80\x04]\x94(K\x07\x94h\x01"
                 "e."s),
            "[7, 7]");
  EXPECT_THAT(Read("\x80\x02h\x05."s), HasSubstr("has not remembered"));
}

TEST(Pickle, neverRunsAnything) {
  for (const std::string& program :
       {"\x80\x02"
        "cos\nsystem\n."s,
        "\x80\x04\x8c\x02os\x8c\x06system\x93."s, "\x80\x02NNR."s, "\x80\x02Nb."s, "\x80\x02(ios\nsystem\n."s,
        "\x80\x02(No."s, "\x80\x02NN\x81."s, "\x80\x04NNN\x92."s, "\x80\x02P1\n."s, "\x80\x02NQ."s,
        "\x80\x02\x82\x01."s, "\x80\x02\x83\x01\x00."s, "\x80\x02\x84\x01\x00\x00\x00."s}) {
    EXPECT_THAT(Read(program), HasSubstr("which is never done")) << program;
  }
}

TEST(Pickle, refusesWhatNoWriterOfDataWrites) {
  EXPECT_THAT(Read(""), HasSubstr("the file is cut off"));
  EXPECT_THAT(Read("\x80\x01N."s), HasSubstr("this one is of protocol 1"));
  EXPECT_THAT(Read("\x80\x06N."s), HasSubstr("this one is of protocol 6"));
  EXPECT_THAT(Read("\x80\x02."s), HasSubstr("holds no value"));
  EXPECT_THAT(Read("\x80\x02I1\n."s), HasSubstr("the byte 0x49 is no instruction"));
  EXPECT_THAT(Read("\x80\x02"
                   "e."s),
              HasSubstr("not there"));
  EXPECT_THAT(Read("\x80\x02K\x01"
                   "a."s),
              HasSubstr("no list or dictionary"));
  EXPECT_THAT(Read("\x80\x02K\x01K\x02"
                   "a."s),
              HasSubstr("no list or dictionary"));
  EXPECT_THAT(Read("\x80\x02}(K\x01u."s), HasSubstr("no list or dictionary"));
  EXPECT_THAT(Read("\x80\x02](K\x01(K\x02"
                   "aee."s),
              HasSubstr("no list or dictionary"));
  EXPECT_THAT(Read("\x80\x02K\x01(\x86."s), HasSubstr("not there"));
  EXPECT_THAT(Read("\x80\x02q\x01."s), HasSubstr("before there is one"));
}

TEST(Pickle, survivesLengthsBeyondTheFileAndMemoriesOfBillions) {
  EXPECT_THAT(Read("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s), HasSubstr("cut off"));
  EXPECT_THAT(Read("\x80\x02\x8b\xff\xff\xff\xff."s), HasSubstr("cut off"));
  EXPECT_THAT(Read("\x80\x02Nr\xff\xff\xff\xff."s), HasSubstr("more than a file of its size"));
  EXPECT_THAT(Read("\x80\x02" + std::string(1'000'000, ']') + "."), HasSubstr("more values than a snapshot"));
  EXPECT_THAT(Read("\x80\x02" + std::string(1'000'000, '(') + "."), HasSubstr("nested deeper"));
}

TEST(Pickle, aListThatHoldsItselfIsReadInFinishedTime) {
  const std::string itself =
      "\x80\x02]q\x00(h\x00h\x00"
      "e."s;
  PickleHeap heap;
  Watcher watcher;
  const Result<PickleValue> value = ReadPickle(itself, heap, watcher);
  ASSERT_TRUE(value);
  EXPECT_EQ(heap.Items(*value).size(), 2U);
  EXPECT_EQ(watcher.shown, 1);
}

/// Puts a number in the place of every dictionary.
class Counter : public PickleListener {
 public:
  Result<PickleValue> Finish(const PickleHeap&, PickleValue container) override {
    return container.kind == Kind::dict ? PickleValue::Record(3, ++made_) : container;
  }

 private:
  std::size_t made_ = 0;
};

TEST(Pickle, aReplacedContainerIsReplacedWhereverItIsNamed) {
  const std::string bytes =
      "\x80\x02](}q\x00(K\x01K\x02u}h\x00K\x05"
      "e."s;
  PickleHeap heap;
  Counter counter;
  const Result<PickleValue> value = ReadPickle(bytes, heap, counter);
  ASSERT_TRUE(value) << value.error().Text();
  const auto items = heap.Items(*value);
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].kind, Kind::record);
  EXPECT_EQ(items[0].size, 3U);
  EXPECT_EQ(items[0].number, 1);
  EXPECT_EQ(items[1].number, 2);
  EXPECT_EQ(items[2].number, 1);
  EXPECT_EQ(items[3].number, 5);

  EXPECT_THAT(
      [&] {
        PickleHeap other;
        Counter again;
        const Result<PickleValue> grown = ReadPickle(
            "\x80\x02]}q\x00"
            "a](h\x00(K\x01K\x02u"
            "e."s,
            other, again);
        return grown ? std::string() : grown.error().message;
      }(),
      HasSubstr("complete already"));
}

TEST(Pickle, isRecognisedByItsFirstBytes) {
  EXPECT_TRUE(LooksLikePickle("\x80\x02}q"));
  EXPECT_TRUE(LooksLikePickle("\x80\x02]."));
  EXPECT_TRUE(
      LooksLikePickle("\x80\x02"
                      "cos\n"));
  EXPECT_FALSE(LooksLikePickle("\x80\x02K"));
  EXPECT_FALSE(LooksLikePickle("\x80\x01}q"));
  EXPECT_TRUE(LooksLikePickle("\x80\x04\x95\x09\x00\x00\x00\x00\x00\x00\x00}"s));
  EXPECT_FALSE(LooksLikePickle("\x80\x02"));
  EXPECT_FALSE(LooksLikePickle("TIDEMARK TRACE 1\n"));
  EXPECT_FALSE(LooksLikePickle(""));
}

}  // namespace
}  // namespace tidemark::pickle_test
