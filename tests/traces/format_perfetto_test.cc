// SPDX-License-Identifier: Apache-2.0
//
// Bytes derived by hand from Perfetto's field numbers (traces/formats/perfetto.proto). A tag is field << 3 | wire type,
// as a varint: 0 is a varint, 1 are 8 bytes, 2 is a length and so many bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "traces/formats/format.h"

namespace tidemark::format_perfetto_test {
namespace {

using testing::HasSubstr;

/// "0a 11 'steps'" as bytes: two digits are a byte, letters in quotes stand for themselves.
std::string Bytes16(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\'') {
      const std::size_t end = text.find('\'', i + 1);
      bytes += text.substr(i + 1, end - i - 1);
      i = end;
    } else if (text[i] != ' ') {
      bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
      ++i;
    }
  }
  return bytes;
}

std::string Written(const std::vector<Trace>& traces) { return *(*FindTraceFormat("perfetto"))->Write(traces); }

Trace Named() {
  Trace trace;
  trace.role = "a";
  trace.origin = "b";
  return trace;
}

/// One tensor that lives from 7 to 9 ns, in a block of 512 bytes of a segment of 2 MiB.
Trace OneTensor() {
  Trace trace = Named();
  trace.tensors = {{"x", Category::logits, DType::fp32, Bytes(300)}};
  MemoryEvent event;
  event.tensor = TensorNameId{0};
  event.issue = event.ready = Nanos(7);
  event.allocator_bytes = Bytes(512);
  event.reserved_bytes = Bytes(1 << 21);
  trace.memory.push_back(event);
  event.alloc = false;
  event.issue = event.ready = Nanos(9);
  event.allocator_bytes = Bytes(0);
  trace.memory.push_back(event);
  return trace;
}

TEST(PerfettoFormat, writesAStepAsTheFieldTableSays) {
  Trace trace = Named();
  trace.steps = {{"", Nanos(3), Nanos(300), 0}};
  const std::string root =
      "0a 11"           // Trace.packet, 17 bytes
      "40 00"           //   timestamp 8 = 0
      "50 01"           //   trusted_packet_sequence_id 10 = 1
      "68 03"           //   sequence_flags 13 = 1 | 2: the first of its sequence
      "e2 03 05"        //   track_descriptor 60, 5 bytes
      "08 00 98 01 01"  //     uuid 1 = 0, process_ordering 19 = by rank
      "b8 05 01";       //   first_packet_on_sequence 87 = true
  const std::string process =
      "0a 1a 40 00 50 02 68 03"
      "e2 03 0e"         //   track_descriptor, 14 bytes
      "08 01"            //     uuid = 1
      "1a 08"            //     process 3, 8 bytes
      "08 01 32 01 'a'"  //       pid 1 = 1, process_name 6
      "42 01 'b'"        //       process_labels 8
      "60 01"            //     sibling_order_rank 12 = 1
      "b8 05 01";
  const std::string track =
      "0a 16 40 00 50 02 68 02"  // sequence_flags = 2: needs what the first began
      "e2 03 0d"                 //   track_descriptor, 13 bytes
      "08 02 12 05 'steps'"      //     uuid = 2, name 2
      "28 01 78 02";             //     parent_uuid 5 = 1, sibling_merge_behavior 15 = none
  const std::string begin =
      "0a 1c 40 03 50 02"           // at 3 ns
      "5a 06"                       //   track_event 11, 6 bytes
      "48 01 50 01 58 02"           //     type 9 = begin, name_iid 10 = 1, track_uuid 11 = 2
      "62 0c"                       //   interned_data 12, 12 bytes
      "12 0a 08 01 12 06 'step 1'"  //  event_names 2: iid 1 = 1, name 2
      "68 02";
  const std::string end =
      "0a 0d 40 ac 02 50 02"  // at 300 ns
      "5a 04 48 02 58 02"     //   type = end, track_uuid = 2
      "68 02";
  EXPECT_EQ(Written({trace}), Bytes16(root + process + track + begin + end));
}

TEST(PerfettoFormat, aMemoryEventIsOnePacketWithTheTotalsAsExtraValues) {
  const std::string written = Written({OneTensor()});
  // The process is track 1, the category 2, the totals 3 to 5, which are this sequence's extra counters.
  EXPECT_THAT(written, HasSubstr(Bytes16("da 03 0b 5a 09"  // trace_packet_defaults 59 { track_event_defaults 11 {
                                         "f8 01 03 f8 01 04 f8 01 05")));            // extra_counter_track_uuids 31
  EXPECT_THAT(written, HasSubstr(Bytes16("08 02 12 1a 'memory by category: logits'"  // uuid, name
                                         "28 01 42 16"                               // parent_uuid, counter 8
                                         "18 03 3a 12 'memory by category'")));  // unit 3 = bytes, y_axis_share_key 7
  EXPECT_THAT(written, HasSubstr(Bytes16("0a 1b 40 07 50 02 5a 13"               // at 7 ns, a track_event of 19 bytes
                                         "48 04 58 02"                           //   type = counter, track_uuid = 2
                                         "60 ac 02 60 80 04"                     //   extra_counter_values 12: 300, 512
                                         "60 80 80 80 01"                        //   and 2^21
                                         "f0 01 ac 02 68 02")));                 //   counter_value 30 = 300
  EXPECT_THAT(written, HasSubstr(Bytes16("0a 13 40 09 50 02 5a 0b"               // at 9 ns
                                         "48 04 58 02 60 00 60 00"               //   allocated and the allocator's: 0
                                         "f0 01 00 68 02")));                    //   reserved stays what it was
}

/// A reader that takes an extra value of 0 for the end of the list would lose the 512.
TEST(PerfettoFormat, noExtraValueStandsBehindAZero) {
  Trace trace = OneTensor();
  trace.memory[1].allocator_bytes = Bytes(256);
  const std::string written = Written({trace});
  EXPECT_THAT(written, HasSubstr(Bytes16("40 09 50 02 5a 07 48 04 58 02 f0 01 00 68 02")));     // the category: 0
  EXPECT_THAT(written, HasSubstr(Bytes16("40 09 50 02 5a 07 48 04 58 03 f0 01 00 68 02")));     // allocated: 0
  EXPECT_THAT(written, HasSubstr(Bytes16("40 09 50 02 5a 08 48 04 58 04 f0 01 80 02 68 02")));  // allocator: 256
}

TEST(PerfettoFormat, timesBeforeZeroMoveAllOfTheFile) {
  Trace early = OneTensor(), late = OneTensor();
  early.memory[0].issue = Nanos(-1);
  const std::string written = Written({early, late});
  EXPECT_THAT(written, HasSubstr(Bytes16("0a 1b 40 00 50 02 5a 13")));  // -1 ns is 0
  EXPECT_THAT(written, HasSubstr(Bytes16("0a 1b 40 08 50 03 5a 13")));  // 7 ns of the other is 8
}

TEST(PerfettoFormat, aTraceWithoutEventsIsAProcess) {
  EXPECT_THAT(Written({Named()}), HasSubstr(Bytes16("1a 08 08 01 32 01 'a' 42 01 'b'")));
}

TEST(PerfettoFormat, isOnlyWritten) {
  const std::unique_ptr<TraceFormat> format = *FindTraceFormat("perfetto");
  EXPECT_FALSE(format->reads());
  EXPECT_FALSE(format->Sniff(Written({OneTensor()})));
  const Result<TraceFile> read = format->Read("");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::bad_input);
}

}  // namespace
}  // namespace tidemark::format_perfetto_test
