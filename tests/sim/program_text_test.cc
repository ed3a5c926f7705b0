// SPDX-License-Identifier: Apache-2.0
#include "sim/program/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tidemark::program_text_test {
namespace {

using ::testing::HasSubstr;

// Every kind of line once; written by hand from the grammar in text.h.
constexpr std::string_view kEverything = R"(role 1 "stage 1", 8 ranks

groups:
  dp  16 ranks, 8 per node
  pp  2 ranks, 1 per node

channels:
  forward.0   role 0 -> role 1, crosses nodes
  backward.0  role 1 -> role 0

streams:
  host        host
  main        compute
  all_gather  collective
  "to stage"  peer
  load        copy

events:
  gathered
  "used up"

buffers:
  shard[4]      parameter    1409286  fp32   born on main, resident, kept, holds own rows of 16 masters frozen multiple 2 from layer head.norm, holds all together of 16 unpadded aligned 64 multiple 128 from layer.wq[3..5] layer.wk[-1]
  full[2]       parameter   11274288  bf16   born on all_gather
  hidden[2][5]  activation      4096  bf16   born on main
  ids           input              4  int64  born on host, host memory, resident, kept
  "bucket 0"    bucket          4096  bf16   born on main, resident, kept
  again         bucket            16  bf16   view of ids
  slot[2]       bucket          2048  bf16   slices of "bucket 0" at 2048 and "bucket 0" at 0, holds own whole of 1 from layer.wq

program:
  begin load
  copy ids.load 32 bytes on load reads ids
  end load
  repeat m 0..1 x2 {
    begin forward microbatch m
    alloc hidden[m][0]
    recv hidden.in hidden[m][0] from forward.0 on "to stage"
    repeat layer 3..0 x4 {
      alloc full[(layer+1)%2]
      all_gather layer.gather 11274288 bf16 over dp on all_gather in flight 0 reads shard[layer] writes full[(layer+1)%2]
      record gathered on all_gather
      wait gathered on main
      alloc hidden[m][layer+1]
      compute wq.forward gemm(m=4, n=1024, k=1024, accumulate=true, output=fp32) on main beside flight 0 2 reads hidden[m][0], full[(layer+1)%2] writes hidden[m][layer+1]
      recompute attention.forward attention(batch=1, heads=8, causal=false) on main
      free full[(layer+1)%2]
      free hidden[m][layer+1]
    }
    scale grads.scale shard[3] by 1/4 on main
    reduce_scatter grads 22548480 fp32 avg times 1/2 over dp on main reads shard[0] writes shard[1]
    send hidden.out hidden[m][0] into backward.0 on main
    end forward
  }
  repeat last 7..7 x1 step -1 {
  }
  begin optimizer
  sync device
  sync stream all_gather
  optimizer adam.update optimizer_update(elements=1409286, bytes_moved=12) on main writes shard[3%2]
  end optimizer
)";

Error ErrorOf(std::string_view text) {
  const Result<Program> program = ParseProgram(text);
  EXPECT_FALSE(program.ok()) << text;
  return program ? Error{} : program.error();
}

/// A program of one family `x[4]`, two streams, an event and a channel around `lines`.
std::string WithLines(std::string_view lines) {
  return "role 0 only, 1 ranks\ngroups:\n  dp 8 ranks, 8 per node\nchannels:\n  right role 0 -> role 1\n"
         "streams:\n  host host\n  main compute\nevents:\n  done\nbuffers:\n  x[4] workspace 8 u8 born on main\n"
         "program:\n" +
         std::string(lines);
}

TEST(ProgramText, EveryKindOfLineIsReadAndPrintedBack) {
  Result<Program> program = ParseProgram(kEverything);
  ASSERT_TRUE(program.ok()) << program.error().Text();
  EXPECT_EQ(Print(*program), kEverything);
}

TEST(ProgramText, ALineBecomesTheNodeItSays) {
  Result<Program> program = ParseProgram(kEverything);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->role, "stage 1");
  EXPECT_EQ(program->role_index, 1);
  EXPECT_EQ(program->ranks, 8);
  EXPECT_EQ(program->buffers[2].extents, (std::array<std::int64_t, 2>{2, 5}));
  EXPECT_TRUE(program->channels[0].crosses_nodes);
  EXPECT_FALSE(program->channels[1].crosses_nodes);
  EXPECT_EQ(program->buffers[3].place, Place::host);

  const auto& microbatches = std::get<Repeat>(program->nodes[3]);
  EXPECT_EQ(microbatches.size, 17U);  // all lines between its braces that are not a brace
  const auto& layers = std::get<Repeat>(program->nodes[7]);
  EXPECT_EQ(layers.from, 3);
  EXPECT_EQ(layers.step, -1);
  EXPECT_EQ(layers.count, 4);

  const auto& alloc = std::get<Alloc>(program->nodes[8]);
  EXPECT_EQ(alloc.buffer.index[0], (Index{.loop = layers.loop, .offset = 1, .modulus = 2}));
  EXPECT_EQ(alloc.buffer.index[1], Index{});

  const auto& gemm = std::get<Gemm>(std::get<Compute>(program->nodes[13]).op);
  EXPECT_EQ(gemm.n, 1024);
  EXPECT_EQ(gemm.batch, 1);  // left out: the default
  EXPECT_TRUE(gemm.accumulate);
  EXPECT_EQ(gemm.output, DType::fp32);
  EXPECT_EQ(std::get<Compute>(program->nodes[14]).work, Work::recompute);

  const auto& scatter = std::get<Collective>(program->nodes[18]);
  EXPECT_EQ(scatter.reduction, Reduction::avg);
  EXPECT_EQ(scatter.scale, Rational(1, 2));
  EXPECT_EQ(std::get<Begin>(program->nodes[0]).microbatch, (Index{.loop = {}, .offset = -1}));
}

TEST(ProgramText, CommentsBlankLinesAndIndentationMeanNothing) {
  Result<Program> plain = ParseProgram(WithLines("alloc x[1]\nfree x[1]\n"));
  Result<Program> loose = ParseProgram(WithLines("\n# all of it\n\t alloc x [ 1 ]   # one\r\n\n      free x[1]"));
  ASSERT_TRUE(plain.ok() && loose.ok());
  EXPECT_EQ(Print(*plain), Print(*loose));
}

TEST(ProgramText, ADanglingIdIsShownInsteadOfCrashing) {
  Program program;
  program.role = "broken";
  program.nodes = {Alloc{{BufferId{7}, {}}}, Record{EventId{3}, StreamId{}}, Repeat{.loop = LoopId{2}, .size = 9}};
  EXPECT_THAT(Print(program), HasSubstr("alloc \"?7\"\n"));
  EXPECT_THAT(Print(program), HasSubstr("record \"?3\" on \"?4294967295\"\n"));
  EXPECT_THAT(Print(program), HasSubstr("repeat \"?2\" 0..0 x1 {\n  }\n"));
}

TEST(ProgramText, AMisspeltNameIsAnsweredWithTheNearest) {
  const Error stream = ErrorOf(WithLines("alloc x[0]\nrecord done on mian\n"));
  EXPECT_EQ(stream.where, "line 15");  // 13 lines of header, then the second
  EXPECT_EQ(stream.message, "expected a stream, found 'mian'");
  EXPECT_EQ(stream.hint, "did you mean 'main'?");
  EXPECT_EQ(ErrorOf(WithLines("aloc x[0]\n")).hint, "did you mean 'alloc'?");
  EXPECT_EQ(ErrorOf(WithLines("all_gathr g 8 u8 over dp on main\n")).hint, "did you mean 'all_gather'?");
  EXPECT_EQ(ErrorOf(WithLines("compute a gem(m=1) on main\n")).hint, "did you mean 'gemm'?");
  EXPECT_EQ(ErrorOf(WithLines("compute a norm(widht=1) on main\n")).hint, "did you mean 'width'?");
  EXPECT_EQ(ErrorOf(WithLines("compute a gemm(dtype=bf61) on main\n")).hint, "did you mean 'bf16'?");
  EXPECT_EQ(ErrorOf(WithLines("begin foward\n")).hint, "did you mean 'forward'?");
  EXPECT_EQ(ErrorOf(WithLines("wait dome on main\n")).hint, "did you mean 'done'?");
  EXPECT_EQ(ErrorOf("role 0 r, 1 ranks\nstraems:\n").hint, "did you mean 'streams'?");
}

TEST(ProgramText, ErrorsNameTheLineAndWhatWasExpected) {
  EXPECT_EQ(ErrorOf("").message, "expected a line such as 'role 0 \"stage 0\", 1 ranks', found the end of the text");
  EXPECT_EQ(ErrorOf("role 0 r, 1\n").message, "expected 'ranks', found the end of the line");
  EXPECT_EQ(ErrorOf("role 0 r, 1 ranks\n  main compute\n").message,
            "expected a section such as 'streams:', found 'main'");
  EXPECT_EQ(ErrorOf("role 0 r, 1 ranks\nstreams:\n  host host\n  host compute\n").message,
            "expected a stream of its own, found 'host' a second time");
  EXPECT_EQ(ErrorOf(WithLines("alloc x[0]\nstreams:\n")).message,
            "expected 'program:' to be the last section, found 'streams:' after it");
  EXPECT_EQ(ErrorOf(WithLines("alloc x[layer]\n")).message, "expected a loop, found 'layer'");
  EXPECT_EQ(ErrorOf(WithLines("repeat a 0..0 x1 {\n}\nalloc x[a]\n")).message,
            "expected a loop around this line, found 'a'");
  EXPECT_EQ(ErrorOf(WithLines("alloc x[0] x\n")).message, "expected the end of the line, found 'x'");
  EXPECT_EQ(ErrorOf(WithLines("alloc x[1%0]\n")).message, "expected a modulus from 1 to 1099511627776, found '0'");
  EXPECT_EQ(ErrorOf(WithLines("compute \"open gemm() on main\n")).message,
            "expected the operation's name, found '\"open gemm() on main'");
}

TEST(ProgramText, RepeatsMustCloseAndCountRight) {
  const Error open = ErrorOf(WithLines("repeat a 0..1 x2 {\nalloc x[a]\n"));
  EXPECT_EQ(open.message, "expected '}' for the 'repeat' of line 14, found the end of the text");
  EXPECT_EQ(ErrorOf(WithLines("}\n")).message, "expected a leaf or 'repeat', found '}' that closes nothing");
  EXPECT_EQ(ErrorOf(WithLines("repeat a 0..3 x3 {\n}\n")).message,
            "expected as many iterations as there are numbers from 0 to 3, found 3");
  EXPECT_EQ(ErrorOf(WithLines("repeat a 0..-1 x0 {\n}\n")).message, "expected a count such as 'x32', found 'x0'");
}

TEST(ProgramText, NumbersThatWouldOverflowLaterAreRefused) {
  for (const std::string_view line :
       {"copy c 99999999999999999999 bytes on main", "alloc x[9999999999999]",
        "all_reduce a 4611686018427387904 fp32 over dp on main", "scale s x[0] by 1/0 on main",
        "compute a gemm(m=-1) on main", "repeat a 0..9999999999999 x10000000000000 {"}) {
    EXPECT_THAT(ErrorOf(WithLines(line)).where, HasSubstr("line 14")) << line;
  }
}

TEST(ProgramText, NoPrefixOfATextIsTrouble) {
  for (std::size_t length = 0; length <= kEverything.size(); ++length) {
    const Result<Program> program = ParseProgram(kEverything.substr(0, length));
    if (!program) {
      EXPECT_EQ(program.error().code, ErrorCode::bad_input);
      EXPECT_THAT(program.error().message, HasSubstr("expected"));
    }
  }
}

}  // namespace
}  // namespace tidemark::program_text_test
