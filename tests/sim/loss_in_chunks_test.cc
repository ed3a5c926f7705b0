// SPDX-License-Identifier: Apache-2.0
#include "models/network/loss_in_chunks.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/highest.h"
#include "tests/sim/oracle_job.h"

// The model of the worked numbers: n = 4096 tokens, h = 1024, V = 32,000, bf16.

namespace tidemark::loss_in_chunks_test {
namespace {

using Loss = Partition::Loss;
using ::testing::HasSubstr;

constexpr std::int64_t kV = 32000, kH = 1024;

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

Job WithLoss(Loss loss, std::int64_t chunk_tokens = 0, const std::string& strategy = "ddp-last",
             std::int64_t microbatches = 1) {
  Job job = OracleJob(strategy, microbatches);
  job.axes.loss = loss;
  job.axes.loss_chunk_tokens = chunk_tokens;
  return job;
}

/// First, middle, turns, last.
std::vector<std::int64_t> PlanOf(Job job) {
  const Partition partition = PartitionOf(job);
  const ChunkPlan plan = PlanChunks(LocalShape(DecoderOf(job), partition), partition);
  return {plan.first, plan.middle, plan.turns, plan.last};
}

using Numbers = std::vector<std::int64_t>;

TEST(ChunkPlan, IsEightChunksOrLigersRuleUnlessTokensAreGiven) {
  EXPECT_EQ(PlanOf(WithLoss(Loss::chunked)), (Numbers{512, 512, 6, 512}));
  EXPECT_EQ(PlanOf(WithLoss(Loss::chunked, 1000)), (Numbers{1000, 1000, 3, 96}));
  EXPECT_EQ(PlanOf(WithLoss(Loss::chunked, 4095)), (Numbers{4095, 4095, 0, 1}));
  EXPECT_EQ(PlanOf(WithLoss(Loss::chunked, 4096)), (Numbers{4096, 0, 0, 0}));
  EXPECT_EQ(PlanOf(WithLoss(Loss::chunked, 5000)), (Numbers{4096, 0, 0, 0}));
  // ceil(32000 / 1024) = 32 chunks' worth: 4096 / 32 = 128, a power of two.
  EXPECT_EQ(PlanOf(WithLoss(Loss::fused)), (Numbers{128, 128, 30, 128}));
  // The example in the library's source: 16,384 tokens, V 32,000, h 4096: factor 8, chunks of 2048.
  Job job = WithLoss(Loss::fused);
  job.sequence_length = 8192;
  DecoderOf(job).hidden = 4096;
  EXPECT_EQ(PlanOf(job), (Numbers{2048, 2048, 6, 2048}));
  // 248,320 and 2048: factor 122, ceil(16384 / 122) = 135, the next power of two is 256.
  DecoderOf(job).hidden = 2048;
  DecoderOf(job).vocabulary = 248320;
  EXPECT_EQ(PlanOf(job), (Numbers{256, 256, 62, 256}));
}

// 1500 tokens of 4096 in 8 chunks of 512: floor(1500 * 512 / 4096) = 187, and 1500 - 7 * 187 = 191 are left. With
// chunks of 1000: 1500 * 1000 / 4096 = 366.2, 1500 * 96 / 4096 = 35.2; 1500 - 3 * 366 - 35 = 367.
TEST(ChunkPlan, DividesAShorterSequenceAsItDividesTheLongest) {
  Job job = WithLoss(Loss::chunked);
  job.micro_batch_size = 1;
  job.sequence_length = 4096;
  job.mean_sequence_length = 1500;
  EXPECT_EQ(PlanOf(job), (Numbers{512, 512, 6, 512}));
  EXPECT_EQ(PlanOf(OfMeanLength(job)), (Numbers{191, 187, 6, 187}));
  job.axes.loss_chunk_tokens = 1000;
  EXPECT_EQ(PlanOf(OfMeanLength(job)), (Numbers{367, 366, 3, 35}));
}

struct LossBytes {
  std::int64_t forward = 0, between = 0, all = 0;
  friend bool operator==(const LossBytes&, const LossBytes&) = default;
};

/// Bytes of logits: the highest in the forward pass, what lives between the passes, the highest.
LossBytes LossOf(const Job& job) {
  const Ledger ledger = BookOf(job);
  return {ledger.highest_logits_in_forward.count(), ledger.after_forward.at(0)[Category::logits].count(),
          ledger.highest_logits.count()};
}

// Chunked: as `upcast-returned` of the chunk, 14 bytes an element; fp32 logits need no cast: logits, log-softmax and
// two gradients of 4 bytes each. Fused: the logits of one chunk, in the dtype of the hidden states, and nothing else.
TEST(LossInChunks, HoldsTheLogitsOfOneChunk) {
  EXPECT_EQ(LossOf(WithLoss(Loss::chunked)), (LossBytes{0, 0, 14 * 512 * kV}));
  EXPECT_EQ(LossOf(WithLoss(Loss::chunked, 1000)), (LossBytes{0, 0, 14 * 1000 * kV}));
  EXPECT_EQ(LossOf(WithLoss(Loss::fused)), (LossBytes{2 * 128 * kV, 0, 2 * 128 * kV}));
  Job job = WithLoss(Loss::chunked);
  job.axes.precision = {DType::fp32, DType::fp32, DType::fp32, DType::fp32, std::nullopt, DType::fp32};
  EXPECT_EQ(LossOf(job), (LossBytes{0, 0, 16 * 512 * kV}));
  job.axes.loss = Loss::fused;
  EXPECT_EQ(LossOf(job), (LossBytes{4 * 128 * kV, 0, 4 * 128 * kV}));
}

/// A job with one microbatch of so many tokens.
Job Published(std::int64_t tokens, std::int64_t vocabulary, std::int64_t hidden) {
  Job job = WithLoss(Loss::upcast_logits);
  job.layout.dp = 1;
  job.micro_batch_size = 1;
  job.sequence_length = tokens;
  DecoderOf(job).vocabulary = vocabulary;
  DecoderOf(job).hidden = hidden;
  return job;
}

std::int64_t BytesOf(const Job& job, const std::string& name) {
  const StepProgram step = Sound(job);
  for (const Buffer& buffer : step.roles.front().buffers) {
    if (buffer.name == name) {
      return buffer.bytes().count();
    }
  }
  ADD_FAILURE() << "no buffer " << name;
  return 0;
}

// 16,384 x 248,320 logits are 8.1 GB in bf16 and 16.3 GB in fp32. The benchmark of huggingface/trl#6858 (hidden size
// 2048, forward and backward of head and loss, 1 H100) measured 47.55 "GB" for one dense product. In GiB that is what
// the table says: 12 bytes an element, 48,821,698,560, beside the head's weight W and its gradient, 1,017,118,720 each,
// and three tensors of 16,384 x 2048 in bf16: 51,057,262,592 bytes = 47.551 GiB. Its other rows are of other code than
// the losses here: cut-cross-entropy, 3.09, never holds logits (3 W and four such tensors are 3.092 GiB);
// Liger-Kernel's 6.05 fit its former way of adding each chunk's weight gradient through a product in bf16 and its cast
// to fp32 (6 W, four such tensors and a chunk's logits are 6.052 GiB), where today's code needs neither; TRL's own
// chunks, 19.67, do not fit any form modelled.
TEST(CrossEntropy, LogitsHaveThePublishedSizes) {
  Job job = Published(16384, 248320, 2048);
  EXPECT_EQ(BytesOf(job, "head.logits"), 8'136'949'760);
  EXPECT_EQ(BytesOf(job, "head.logits_fp32"), 16'273'899'520);
  EXPECT_EQ(BookOf(job).highest_logits.count(), 48'821'698'560);
  job.axes.loss = Loss::fused;
  EXPECT_EQ(BookOf(job).highest_logits.count(), 256 * 248320 * 2);
  // 8,192 x 151,936 x 4 bytes = 4.64 GiB; for 1,024 tokens 0.58 GiB.
  job = Published(8192, 151936, 1024);
  EXPECT_EQ(BytesOf(job, "head.logits_fp32"), 4'978'638'848);
  job.axes.loss = Loss::chunked;
  job.axes.loss_chunk_tokens = 1024;
  EXPECT_EQ(BytesOf(job, "head.logits_fp32_first"), 622'329'856);
  EXPECT_EQ(BytesOf(job, "head.logits_fp32_next"), 622'329'856);
}

// Between the passes a fused loss keeps the gradients of the weight, 2 Vh, and of the hidden states; a chunked one has
// made none.
TEST(FusedLoss, KeepsTheWeightsGradientFromTheForwardPassOn) {
  EXPECT_EQ(BookOf(WithLoss(Loss::fused)).after_forward.at(0)[Category::gradient].count(), 2 * kV * kH);
  EXPECT_EQ(BookOf(WithLoss(Loss::chunked)).after_forward.at(0)[Category::gradient].count(), 0);
  // Nobody asks for the gradient of a frozen weight.
  Job frozen = WithLoss(Loss::fused);
  frozen.network.trainable = {"layer.*"};
  EXPECT_EQ(BookOf(frozen).after_forward.at(0)[Category::gradient].count(), 0);
}

/// The nodes of a program as text, from the first that contains `from`.
std::vector<std::string> LinesFrom(const StepProgram& step, const std::string& from) {
  std::istringstream text(Print(step.roles.front()));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (!lines.empty() || line.find(from) != std::string::npos) {
      lines.push_back(line.substr(line.find_first_not_of(' ')));
    }
  }
  return lines;
}

// The gradient that is handed on is the one that was made: there is no instant with both.
TEST(FusedLoss, HandsTheWeightsGradientOnInPlace) {
  const std::vector<std::string> lines =
      LinesFrom(Sound(WithLoss(Loss::fused, 0, "fsdp2-scatter-each")), "compute head.input_gradient.scale");
  ASSERT_GE(lines.size(), 4U);
  EXPECT_EQ(lines[1], "free \"head.gradient made with the loss\"");
  EXPECT_EQ(lines[2], "alloc \"gradient of head.lm_head\"");
  EXPECT_THAT(lines[3], HasSubstr("compute head.weight_gradient.scale"));
}

// So too where GEMMs add to Megatron's gradient buffer themselves: this gradient is none's, and what would add it needs
// it alive.
TEST(FusedLoss, HandsATiedGradientToTheHookThatAddsIt) {
  Job job = WithLoss(Loss::fused, 0, "megatron");
  DecoderOf(job).tied_embeddings = true;
  const std::vector<std::string> lines = LinesFrom(Sound(job), "compute head.input_gradient.scale");
  ASSERT_GE(lines.size(), 4U);
  EXPECT_EQ(lines[1], "free \"head.gradient made with the loss\"");
  EXPECT_EQ(lines[2], "alloc \"gradient of embedding.embedding\"");
  EXPECT_THAT(lines[3], HasSubstr("compute head.weight_gradient.scale"));
}

/// The most that is alive of the buffers that `weigh` names, in bytes.
std::int64_t HighestOfNames(const Job& job, const std::string& part) {
  const auto weigh = [&](const Buffer& buffer) {
    return buffer.name.find(part) == std::string::npos ? 0 : buffer.bytes().count();
  };
  return HighestOf(Sound(job), job.machine, weigh).front();
}

// fully_shard of PyTorch 2.15 gives the parameter a grad_dtype of fp32 while its gradient is not reduced: of every
// chunk the product 2 Vh, its cast 4 Vh, and from the second on the sum 4 Vh beside them. torchtitan b5bcd76c was seen
// to allocate so. On the way to the reduce-scatter sum and input are 8 Vh.
TEST(ChunkedLoss, SumsInTheReduceDtypeUnderFsdp2) {
  const Job job = WithLoss(Loss::chunked, 0, "fsdp2-scatter-each");
  EXPECT_EQ(HighestOfNames(job, "weight_gradient"), (2 + 4) * kV * kH);
  EXPECT_EQ(BytesOf(job, "accumulated gradient of head.lm_head"), 4 * kV * kH);
  Job narrow = job;
  narrow.axes.buffers.wide_chunk_sum = false;  // chunks add up in bf16
  EXPECT_EQ(HighestOfNames(narrow, "weight_gradient"), 2 * kV * kH);
  EXPECT_EQ(HighestOfNames(narrow, "gradient of head.lm_head"), 2 * kV * kH);
  narrow = job;
  narrow.axes.precision.reduce = narrow.axes.precision.accumulate = DType::bf16;  // no wider than gradients
  EXPECT_EQ(HighestOfNames(narrow, "weight_gradient"), 2 * kV * kH);
  // A single chunk is cast as well: beside the product stands its cast, which is the sum.
  const Job one = WithLoss(Loss::chunked, 4096, "fsdp2-scatter-each");
  EXPECT_EQ(HighestOfNames(one, "weight_gradient"), 2 * kV * kH);
  EXPECT_EQ(HighestOfNames(one, "accumulated gradient of head.lm_head"), 4 * kV * kH);
}

// The sum of the first microbatch goes on in the second, where nothing is synchronised between them. (torchtitan's
// wrapper reduces the head in every microbatch; it defers nothing.)
TEST(ChunkedLoss, GoesOnSummingWhereMicrobatchesAreDeferred) {
  Job job = WithLoss(Loss::chunked, 0, "fsdp2-defer", 3);
  job.axes.sync.when = Sync::When::last;
  EXPECT_EQ(HighestOfNames(job, "gradient of head.lm_head"), 4 * kV * kH);
}

// ChunkedLossWrapper calls the head behind the root's forward pass, which has resharded it (PyTorch 2.15,
// _fsdp_state.py, force_complete_post_forward): it is gathered for the norm, for the loss, and for the norm's backward
// pass. Only the last of these prefetches a layer, so that no chunk has one beside it. The norm's reduce-scatter waits
// for the head's, so that no layer has its input beside it.
TEST(ChunkedLoss, CallsAHeadThatFsdp2ReshardsAroundIt) {
  const auto is = [](const std::string& text) {
    return [text](const std::string& line) { return line.find(text) != std::string::npos; };
  };
  const auto lines_of = [](const Job& job) { return LinesFrom(Sound(job), "begin forward"); };
  for (const bool tied : {false, true}) {
    for (const std::int64_t ranks : {1, 4}) {
      for (const std::int64_t ahead : {0, 3}) {
        Job job = WithLoss(Loss::chunked, 0, "fsdp2-scatter-each");
        DecoderOf(job).tied_embeddings = tied;
        job.layout.dp = ranks;
        job.axes.shard.prefetch_forward = ahead;
        const std::string head = tied ? "alloc \"unsharded embedding.embedding\"" : "alloc \"unsharded head.lm_head\"";
        const std::vector<std::string> lines = lines_of(job);
        EXPECT_EQ(std::count_if(lines.begin(), lines.end(), is(head)), 3) << tied << ranks << ahead;
        const auto begin = std::find_if(lines.begin(), lines.end(), is("compute head.input_gradient.zero"));
        const auto end = std::find_if(begin, lines.end(), is("compute head.input_gradient.downcast"));
        ASSERT_NE(end, lines.end());
        EXPECT_EQ(std::count_if(begin, end, is("alloc \"gathered layer")), 0);
        const auto norm = std::find_if(end, lines.end(), is("compute head.norm.backward"));
        EXPECT_EQ(std::count_if(end, norm, is("alloc \"gathered layer")), ranks > 1 ? 1 : 0);
        const auto layer = std::find_if(norm, lines.end(), is("compute layer."));
        EXPECT_EQ(std::count_if(norm, layer, is("free \"scatter input of head\"")), tied ? 0 : 1);
      }
    }
  }
  const std::vector<std::string> dense = lines_of(WithLoss(Loss::upcast_logits, 0, "fsdp2-scatter-each"));
  EXPECT_EQ(std::count_if(dense.begin(), dense.end(), is("alloc \"unsharded head.lm_head\"")), 1);
}

std::vector<Strategy> StrategiesThatAccept(Job& job, std::vector<Job>& jobs) {
  std::vector<Strategy> accepting;
  for (const Strategy& strategy : AllStrategies()) {
    Job own = OracleJob(strategy.defaults.name, job.accumulation_steps);
    own.axes.loss = job.axes.loss;
    own.axes.loss_chunk_tokens = job.axes.loss_chunk_tokens;
    own.network = job.network;
    if (Validate(own).ok() && strategy.Accept(own).ok() && !strategy.DeclaredWrong(own)) {
      accepting.push_back(strategy);
      jobs.push_back(std::move(own));
    }
  }
  return accepting;
}

TEST(LossInChunks, GivesEveryStrategyTheRightGradientOnceAndBothEnginesTheSameNumbers) {
  std::size_t tried = 0;
  for (const Loss loss : {Loss::chunked, Loss::fused}) {
    for (const std::int64_t chunk_tokens : {0, 1500, 4000, 5000}) {  // 8 or 32 chunks, 3, 2, 1
      for (const bool tied : {false, true}) {
        Job job = WithLoss(loss, chunk_tokens, "ddp-last", 3);
        DecoderOf(job).tied_embeddings = tied;
        std::vector<Job> jobs;
        StrategiesThatAccept(job, jobs);
        for (const Job& each : jobs) {
          SCOPED_TRACE(each.strategy);
          const StepProgram step = Sound(each);
          const std::vector<Costs> costs = PriceAll(step, each.machine);
          EXPECT_EQ(EvaluateClosedForm(step, costs), Simulate(step, costs));
          ++tried;
        }
      }
    }
  }
  EXPECT_GT(tried, 200U);
}

// A part of the gradient that is not added is one that never reaches the optimizer. Of a fused loss, which adds its
// parts in the forward pass, Verify does not follow the sum (verify_gradients.h): there the bytes and the products
// below are all that speaks for it.
TEST(ChunkedLoss, APartThatIsNotAddedIsFound) {
  StepProgram step = Sound(WithLoss(Loss::chunked));
  Program& program = step.roles.front();
  const auto is_last_sum = [&](const Node& node) {
    const auto* kernel = std::get_if<Compute>(&node);
    return kernel != nullptr && program.names[kernel->name.index] == "head.lm_head.sum_weight_gradient";
  };
  const auto last = std::find_if(program.nodes.rbegin(), program.nodes.rend(), is_last_sum);
  ASSERT_NE(last, program.nodes.rend());
  program.nodes.erase(std::next(last).base());
  const std::vector<Finding> findings = Verify(step);
  ASSERT_FALSE(findings.empty());
  EXPECT_THAT(findings.front().message, HasSubstr("head.lm_head.weight_gradient"));
}

// All chunks together multiply as much as one product does. The three statistics of a divided vocabulary, 4 bytes a
// token each, are reduced chunk by chunk.
TEST(LossInChunks, MultipliesAndCommunicatesAsMuchAsTheDenseLoss) {
  const auto flops = [](const Job& job) { return CountFlops(Sound(job).roles.front()).model; };
  const double dense = flops(WithLoss(Loss::upcast_logits));
  EXPECT_EQ(flops(WithLoss(Loss::chunked)), dense);
  EXPECT_EQ(flops(WithLoss(Loss::chunked, 1000)), dense);
  EXPECT_EQ(flops(WithLoss(Loss::fused)), dense);
  for (const auto& [loss, count] : {std::pair(Loss::upcast_logits, 3), {Loss::chunked, 24}}) {
    Job job = WithLoss(loss, 0, "fsdp2-scatter-each");
    job.layout.tp = 2;
    job.layout.sp = true;
    std::int64_t found = 0;
    for (const CommunicationRow& row : CountCommunication(Sound(job).roles.front())) {
      if (row.kind == "all_reduce" && row.group == "tp" && row.dtype == DType::fp32) {
        EXPECT_EQ(row.count, count);
        EXPECT_EQ(row.payload.count(), 3 * 4096 * 4);
        ++found;
      }
    }
    EXPECT_EQ(found, 1);
  }
}

TEST(LossInChunks, IsRefusedWhereItIsNotModelled) {
  const auto refusal = [](const Job& job) {
    const Status status = Validate(job);
    return status ? std::string() : status.error().Text();
  };
  Job job = WithLoss(Loss::fused);
  EXPECT_EQ(refusal(job), "");
  job.layout.tp = 2;
  EXPECT_THAT(refusal(job), HasSubstr("wants the whole vocabulary"));
  job = WithLoss(Loss::chunked, 0, "nanotron");
  job.layout.tp = 2;
  EXPECT_EQ(refusal(job), "");
  job.layout.sp = true;
  EXPECT_THAT(refusal(job), HasSubstr("cannot be gathered again"));
  job.axes.loss = Loss::softmax_saving;  // as the hint says
  EXPECT_EQ(refusal(job), "");
  job = WithLoss(Loss::fused, 0, "ddp-last", 4);
  job.layout.pp = 2;
  job.schedule = Schedule::zb_h1;
  EXPECT_THAT(refusal(job), HasSubstr("puts off"));
  job.schedule = Schedule::one_f_one_b;  // as the hint says
  EXPECT_EQ(refusal(job), "");
  job = WithLoss(Loss::upcast_logits, 512);
  EXPECT_THAT(refusal(job), HasSubstr("losses that take chunks"));
  job = OracleJob("gradcache", 2);
  job.axes.loss = Loss::chunked;
  EXPECT_THAT(refusal(job), HasSubstr("the head of one decoder"));
}

}  // namespace
}  // namespace tidemark::loss_in_chunks_test
