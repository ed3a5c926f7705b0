// SPDX-License-Identifier: Apache-2.0
#include "traces/utf8.h"

#include <gtest/gtest.h>

#include "tests/reports/sample_report.h"
#include "tests/traces/expect_equal.h"
#include "traces/formats/format.h"

namespace tidemark::utf8_test {
namespace {

TEST(Utf8, textThatIsNoneIsReplacedAndAllElseStays) {
  Trace trace;
  trace.role = "a \"\xC3\xA9\" \xff\n";  // e with an acute accent, and a byte that no UTF-8 has
  MakeUtf8(trace);
  EXPECT_EQ(trace.role, "a \"\xC3\xA9\" \xEF\xBF\xBD\n");  // U+FFFD
}

TEST(Utf8, whatWasMadeUtf8IsReadBackByOurOwnFormat) {
  Trace trace = SampleTrace({1, 2}).Make();
  const std::string odd = "\xc3";  // the first of two bytes
  trace.role = trace.origin = trace.title = trace.clock = odd;
  trace.strings[0] = trace.tensors[0].name = trace.tensors[1].sharding = odd;
  trace.streams[0].name = trace.spans[0].phase = trace.spans[0].side = odd;
  trace.steps = {{odd, Nanos(0), Nanos(7), 0}};
  trace.marks = {{odd, 1}};
  trace.lints = {{odd, odd, odd, odd, odd}};
  MakeUtf8(trace);
  const Result<TraceFile> file = ReadTraces(*(*FindTraceFormat("tidemark"))->Write({&trace, 1}));
  ASSERT_TRUE(file) << file.error().Text();
  EXPECT_EQ(file->note, "");
  ExpectEqual(file->traces.front(), trace);
}

}  // namespace
}  // namespace tidemark::utf8_test
