// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "tests/models/network_fixture.h"

namespace tidemark::network_blocks_test {
namespace {

std::int64_t ParametersOnRank(const std::vector<BlockRun>& runs) {
  std::int64_t count = 0;
  for (const BlockRun& run : runs) {
    for (const Parameter& parameter : run.block.parameters) {
      count += parameter.tied ? 0 : parameter.elements * run.count;
    }
  }
  return count;
}

std::vector<std::string> ParameterNames(const Block& block) {
  std::vector<std::string> names;
  for (const Parameter& parameter : block.parameters) {
    names.push_back(parameter.name);
  }
  return names;
}

/// "kind:name payload-bytes" of each collective.
std::vector<std::string> Collectives(const std::vector<Action>& pass, CollectiveKind kind) {
  std::vector<std::string> names;
  for (const Action& action : pass) {
    const auto* collective = std::get_if<Communicate>(&action);
    if (collective != nullptr && collective->kind == kind) {
      names.push_back(collective->name);
    }
  }
  return names;
}

TEST(NetworkParameters, CountAsWorkedOutPerRank) {
  // 2h + h^2 + 2hc + h^2 + 2fh + fh a layer (11,274,240), embedding and head 32,768,000 each, a last norm of h. Norms
  // are on every rank, so two ranks hold more than half.
  EXPECT_EQ(ParametersOnRank(Build(WorkedNetwork(), WorkedPartition(1, false))), 110'633'984);
  EXPECT_EQ(ParametersOnRank(Build(WorkedNetwork(), WorkedPartition(2, true))), 55'321'600);
  EXPECT_EQ(ParameterCount(WorkedNetwork()), 110'633'984);
}

TEST(NetworkParameters, StandInTheOrderOfTheirDefinition) {
  Partition p = WorkedPartition(1, false);
  const auto runs = Build(WorkedNetwork(), p);
  EXPECT_EQ(ParameterNames(runs.at(0).block), std::vector<std::string>{"embedding"});
  EXPECT_EQ(ParameterNames(runs.at(1).block),
            (std::vector<std::string>{"norm1", "wq", "wk", "wv", "wo", "norm2", "gate_up", "down"}));
  EXPECT_EQ(ParameterNames(runs.at(2).block), (std::vector<std::string>{"norm", "lm_head"}));
  p.packed_gate_up = false;
  p.packed_qkv = true;
  EXPECT_EQ(ParameterNames(Build(WorkedNetwork(), p).at(1).block),
            (std::vector<std::string>{"norm1", "qkv", "wo", "norm2", "w1", "w3", "down"}));
}

TEST(NetworkParameters, KnowTheirRowsAndTheirFullSize) {
  for (const BlockRun& run : Build(WorkedNetwork(), WorkedPartition(2, true))) {
    for (const Parameter& parameter : run.block.parameters) {
      EXPECT_EQ(parameter.elements % parameter.rows, 0) << parameter.name;
      const bool norm = parameter.name.starts_with("norm");
      EXPECT_EQ(parameter.elements_full, parameter.elements * (norm ? 1 : 2)) << parameter.name;
    }
  }
  const Block layer = Build(WorkedNetwork(), WorkedPartition(2, true)).at(1).block;
  EXPECT_EQ(layer.parameters.at(1).rows, 512);   // wq: h/t rows of h
  EXPECT_EQ(layer.parameters.at(4).rows, 1024);  // wo: h rows of h/t
}

TEST(NetworkParameters, ReplicateKeyValueHeadsThatAreFewerThanRanks) {
  const Block layer = Build(WorkedNetwork(), WorkedPartition(8, true)).at(1).block;
  EXPECT_EQ(layer.parameters.at(2).elements, 64 * 1024);           // one head on each of 8 ranks
  EXPECT_EQ(layer.parameters.at(2).elements_full, 4 * 64 * 1024);  // of four there are
}

TEST(NetworkParameters, ShareATiedHeadWithTheEmbedding) {
  Network network = WorkedNetwork();
  std::get<Decoder>(network.shape).tied_embeddings = true;
  EXPECT_EQ(ParameterCount(network), 110'633'984 - 32'768'000);
  network.trainable = {"embedding.*"};
  const Block head = Build(network, WorkedPartition(1, false)).at(2).block;
  EXPECT_TRUE(head.parameters.at(1).tied);
  EXPECT_TRUE(head.parameters.at(1).trainable);  // it is the embedding
  EXPECT_FALSE(head.parameters.at(0).trainable);
}

TEST(NetworkParameters, TrainOnlyWhatAPatternNames) {
  Network network = WorkedNetwork();
  network.trainable = {"layer.w[qv]", "*.norm*"};
  const auto runs = Build(network, WorkedPartition(2, true));
  std::vector<std::string> trained;
  for (const BlockRun& run : runs) {
    for (const Parameter& parameter : run.block.parameters) {
      if (parameter.trainable) {
        trained.push_back(run.block.name + "." + parameter.name);
      }
    }
  }
  EXPECT_EQ(trained, (std::vector<std::string>{"layer.norm1", "layer.wq", "layer.wv", "layer.norm2", "head.norm"}));
  // The input of a frozen linear is not needed again: 2nh/t of gu_in, and 2nf/t of down_in.
  const Block all = Build(WorkedNetwork(), WorkedPartition(2, true)).at(1).block;
  EXPECT_EQ(SavedTotal(all) - SavedTotal(runs.at(1).block), 4'194'304 + 11'534'336);
}

// nanotron's tp_linear_async_communication: the gather of X beside the product with the own rows; in the backward pass
// the gather of X beside dX, the scatter of dX beside dW, and the gather of dY beside the product with the own rows.
TEST(NetworkCommunication, RunsBesideProductsWhereItIsAsynchronous) {
  Partition p = AsyncPartition();
  p.packed_qkv = p.packed_gate_up = true;
  const Block layer = Build(WorkedNetwork(), p).at(1).block;
  using Names = std::vector<std::string>;
  EXPECT_EQ(Between(layer.forward, "qkv_in.gather", "qkv.forward"),
            (Names{"qkv_in.gather", "qkv.forward_own_rows", "qkv_in.gather.await", "qkv.forward"}));
  EXPECT_EQ(Between(layer.backward, "qkv_in.gather_again", "qkv_in.scatter_gradient.await"),
            (Names{"qkv_in.gather_again", "qkv.input_gradient", "qkv_in.gather_again.await", "qkv_in.scatter_gradient",
                   "qkv.weight_gradient", "qkv_in.scatter_gradient.await"}));
  EXPECT_EQ(Between(layer.backward, "d_wo_out.gather", "wo.weight_gradient"),
            (Names{"d_wo_out.gather", "wo.input_gradient", "d_wo_out.gather.await", "wo.input_gradient",
                   "wo.weight_gradient"}));
}

TEST(NetworkCommunication, LeavesNoRowWithoutItsBiasWhereItIsAsynchronous) {
  Network network = WorkedNetwork();
  std::get<Decoder>(network.shape).qkv_bias = true;
  const Block layer = Build(network, AsyncPartition()).at(1).block;
  int products = 0;
  for (const Action& action : layer.forward) {
    const auto* product = std::get_if<Calculate>(&action);
    if (product != nullptr && product->name.starts_with("wq.forward")) {
      ++products;
      EXPECT_EQ(product->parameters.size(), 2U) << product->name;  // weight and bias
    }
  }
  EXPECT_EQ(products, 2);  // own rows, and the rest
}

TEST(NetworkCommunication, OfTheSameSizesWhereItIsAsynchronous) {
  const Block again = Build(WorkedNetwork(), WorkedPartition(2, true)).at(1).block;
  const Block async = Build(WorkedNetwork(), AsyncPartition()).at(1).block;
  for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
    EXPECT_EQ(Collectives(async.forward, kind), Collectives(again.forward, kind));
    EXPECT_EQ(Collectives(async.backward, kind).size(), Collectives(again.backward, kind).size());
  }
  const auto flops = [](const std::vector<Action>& pass) {
    std::int64_t sum = 0;
    for (const Action& action : pass) {
      const auto* calculate = std::get_if<Calculate>(&action);
      sum += calculate == nullptr ? 0 : FlopsOf(calculate->op).count();
    }
    return sum;
  };
  EXPECT_EQ(flops(async.forward), flops(again.forward));
  EXPECT_EQ(flops(async.backward), flops(again.backward));
}

TEST(NetworkCommunication, CountsFourCollectivesForwardAndSixBackward) {
  // With sequence parallelism, a layer: forward 2 gathers and 2 scatters; backward 2 gathers of dY, 2 scatters of dX
  // and 2 repeated gathers of X. Each moves 2nh = 8,388,608 bytes.
  Partition p = WorkedPartition(2, true);
  const Block layer = Build(WorkedNetwork(), p).at(1).block;
  EXPECT_EQ(Collectives(layer.forward, CollectiveKind::all_gather).size(), 2u);
  EXPECT_EQ(Collectives(layer.forward, CollectiveKind::reduce_scatter).size(), 2u);
  EXPECT_EQ(Collectives(layer.backward, CollectiveKind::all_gather).size(), 4u);
  EXPECT_EQ(Collectives(layer.backward, CollectiveKind::reduce_scatter).size(), 2u);
  int repeated = 0;
  for (const auto* pass : {&layer.forward, &layer.backward}) {
    for (const Action& action : *pass) {
      if (const auto* collective = std::get_if<Communicate>(&action)) {
        EXPECT_EQ((SizeOf(collective->dtype) * collective->payload_elements).count(), 8'388'608);
        repeated += collective->recompute ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(repeated, 2);

  p.gathered = Partition::Gathered::kept;
  EXPECT_EQ(Collectives(Build(WorkedNetwork(), p).at(1).block.backward, CollectiveKind::all_gather).size(), 2u);

  const Block reduced = Build(WorkedNetwork(), WorkedPartition(2, false)).at(1).block;
  EXPECT_EQ(Collectives(reduced.forward, CollectiveKind::all_reduce),
            (std::vector<std::string>{"wo.reduce", "down.reduce"}));
  EXPECT_EQ(Collectives(reduced.backward, CollectiveKind::all_reduce).size(), 2u);
}

TEST(NetworkCommunication, EndsTheEmbeddingAndTheLossWithCollectives) {
  const auto scattered = Build(WorkedNetwork(), WorkedPartition(2, true));
  EXPECT_EQ(Collectives(scattered.at(0).block.forward, CollectiveKind::reduce_scatter).size(), 1u);
  EXPECT_EQ(Collectives(scattered.at(0).block.backward, CollectiveKind::all_gather).size(), 1u);
  // Maximum, sum of exponentials and target logit: n fp32 numbers each.
  EXPECT_EQ(Collectives(scattered.at(2).block.forward, CollectiveKind::all_reduce).size(), 3u);
  const auto reduced = Build(WorkedNetwork(), WorkedPartition(2, false));
  EXPECT_EQ(Collectives(reduced.at(0).block.forward, CollectiveKind::all_reduce).size(), 1u);
}

TEST(NetworkCommunication, IsAbsentOnOneRank) {
  for (const BlockRun& run : Build(WorkedNetwork(), WorkedPartition(1, true))) {
    for (const auto* pass : {&run.block.forward, &run.block.backward}) {
      for (const Action& action : *pass) {
        EXPECT_TRUE(std::holds_alternative<Calculate>(action)) << NameOf(action);
      }
    }
  }
}

// Rules every block obeys, whatever the network: a tensor is written before it is read, touched by some action, and
// each trainable parameter gets its gradient from exactly one action.
void ExpectSound(const Block& block, const std::string& what) {
  std::set<TensorId> written(block.loaded.begin(), block.loaded.end());
  written.insert(block.input);
  std::set<TensorId> touched = written;
  std::map<ParameterId, int> gradients;
  const auto walk = [&](const std::vector<Action>& pass) {
    for (const Action& action : pass) {
      for (const TensorId id : Reads(action)) {
        EXPECT_TRUE(written.contains(id))
            << what << " " << NameOf(action) << " reads " << block.tensors.at(id.index).name;
      }
      written.insert(Writes(action).begin(), Writes(action).end());
      if (const auto* calculate = std::get_if<Calculate>(&action)) {
        for (const ParameterId id : calculate->gradients) {
          ++gradients[id];
        }
      }
    }
  };
  walk(block.forward);
  EXPECT_TRUE(!block.output.valid() || written.contains(block.output)) << what;
  written.insert(block.output_gradient);
  walk(block.backward);
  EXPECT_TRUE(!block.input_gradient.valid() || written.contains(block.input_gradient)) << what;
  for (std::uint32_t i = 0; i < block.tensors.size(); ++i) {
    EXPECT_TRUE(written.contains(TensorId{i})) << what << " " << block.tensors[i].name;
    EXPECT_GT(block.tensors[i].elements, 0) << what << " " << block.tensors[i].name;
  }
  for (std::uint32_t i = 0; i < block.parameters.size(); ++i) {
    EXPECT_EQ(gradients[ParameterId{i}], block.parameters[i].trainable ? 1 : 0) << what << block.parameters[i].name;
  }
}

TEST(NetworkBlocks, AreSoundForEveryCombination) {
  for (int bits = 0; bits < 1 << 11; ++bits) {
    const auto bit = [bits](int i) { return (bits >> i & 1) != 0; };
    Network network = WorkedNetwork();
    auto& d = std::get<Decoder>(network.shape);
    d.norm = bit(0) ? Decoder::Norm::layer : Decoder::Norm::rms;
    d.ffn_kind = bit(1) ? Decoder::Ffn::two_layer : Decoder::Ffn::glu;
    d.qkv_bias = d.linear_bias = bit(2);
    d.parallel_residual = d.qkv_views = bit(3);
    d.dropout = d.attention_dropout = bit(4) ? 0.1 : 0;
    d.positions = bit(4) ? 2048 : 0;
    d.rope = d.relu = bit(5);
    d.norm_kernel = bit(0) ? Decoder::NormKernel::fused : static_cast<Decoder::NormKernel>(bits / 3 % 4);
    d.attention_kernel = static_cast<Decoder::AttentionKernel>(bits / 5 % 3);
    Partition p = WorkedPartition(bit(6) ? 4 : 1, bit(7));
    p.gathered = bit(8) ? Partition::Gathered::kept : Partition::Gathered::again_pooled;
    p.packed_qkv = p.packed_gate_up = bit(9);
    p.fused_glu = p.packed_qkv != bit(8);
    p.fused_rope = bit(7) == bit(9);
    p.loss = static_cast<Partition::Loss>(bits / 7 % 5);
    if (bit(9) && bit(10)) {
      network.trainable = {"*norm*", "*.lm_head"};
    }
    const auto runs = Build(network, p);
    ASSERT_EQ(runs.size(), 3u);
    EXPECT_EQ(runs.at(1).count, 4);
    for (const BlockRun& run : runs) {
      ExpectSound(run.block, std::to_string(bits) + " " + run.block.name);
    }
    // The residual stream fits from block to block.
    for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
      const Block& left = runs[i].block;
      const Block& right = runs[i + 1].block;
      EXPECT_EQ(left.tensors.at(left.output.index).elements, right.tensors.at(right.input.index).elements);
      EXPECT_EQ(left.tensors.at(left.output_gradient.index).elements,
                right.tensors.at(right.input_gradient.index).elements);
    }
  }
}

TEST(NetworkFlops, AreTwiceTheWeightsForwardAndFourTimesBackward) {
  // A multiply-add a weight and token forward, two backward (dX and dW): 2 n P and 4 n P.
  const Block layer = Build(WorkedNetwork(), WorkedPartition(1, false)).at(1).block;
  const auto gemm_flops = [](const std::vector<Action>& pass) {
    Flops flops;
    for (const Action& action : pass) {
      const auto* calculate = std::get_if<Calculate>(&action);
      if (calculate != nullptr && std::holds_alternative<Gemm>(calculate->op)) {
        flops += FlopsOf(calculate->op);
      }
    }
    return flops.count();
  };
  const std::int64_t weights = 11'274'240 - 2 * 1024;  // a layer without its norms
  EXPECT_EQ(gemm_flops(layer.forward), 2 * 4096 * weights);
  EXPECT_EQ(gemm_flops(layer.backward), 4 * 4096 * weights);
}

TEST(NetworkRefusals, NameWhatDoesNotDivide) {
  EXPECT_NE(Refusal(WorkedNetwork(), WorkedPartition(3, false)).find("heads (16)"), std::string::npos);
  Network network = WorkedNetwork();
  std::get<Decoder>(network.shape).ffn = 2817;
  EXPECT_NE(Refusal(network, WorkedPartition(2, false)).find("ffn (2817)"), std::string::npos);
  network = WorkedNetwork();
  std::get<Decoder>(network.shape).vocabulary = 50257;
  EXPECT_NE(Refusal(network, WorkedPartition(2, false)).find("vocabulary (50257)"), std::string::npos);
  network = WorkedNetwork();
  std::get<Decoder>(network.shape).kv_heads = 3;
  EXPECT_NE(Refusal(network, WorkedPartition(1, false)).find("kv_heads (3)"), std::string::npos);
  Partition odd = WorkedPartition(2, true);
  odd.micro_batch_size = 1;
  odd.sequence_length = 1023;
  EXPECT_NE(Refusal(WorkedNetwork(), odd).find("tokens"), std::string::npos);
  network = WorkedNetwork();
  std::get<Decoder>(network.shape).positions = 1024;
  EXPECT_NE(Refusal(network, WorkedPartition(1, false)).find("1024 learned positions"), std::string::npos);
}

TEST(NetworkRefusals, CoverEveryDimensionThatIsZeroNegativeOrAbsurd) {
  for (const auto field : {&Decoder::layers, &Decoder::hidden, &Decoder::ffn, &Decoder::heads, &Decoder::kv_heads,
                           &Decoder::head_size, &Decoder::vocabulary}) {
    for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
      Network network = WorkedNetwork();
      std::get<Decoder>(network.shape).*field = value;
      EXPECT_NE(Refusal(network, WorkedPartition(1, false)), "");
      EXPECT_EQ(ParameterCount(network), 0);
    }
  }
  for (const auto field : {&Partition::micro_batch_size, &Partition::sequence_length, &Partition::tp}) {
    for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
      Partition p = WorkedPartition(1, false);
      p.*field = value;
      EXPECT_NE(Refusal(WorkedNetwork(), p), "");
    }
  }
  Partition integers = WorkedPartition(1, false);
  integers.compute = DType::int32;
  EXPECT_NE(Refusal(WorkedNetwork(), integers).find("floating-point"), std::string::npos);
}

TEST(NetworkRefusals, LeaveNothingThatOverflows) {
  // Any network that is accepted must give all its costs without ending the process.
  for (int hidden = 0; hidden <= 20; hidden += 4) {
    for (int tokens = 0; tokens <= 32; tokens += 4) {
      for (int vocabulary = 0; vocabulary <= 24; vocabulary += 8) {
        Network network = WorkedNetwork();
        auto& d = std::get<Decoder>(network.shape);
        d.layers = 1 << 14;
        d.hidden = d.ffn = std::int64_t{1} << hidden;
        d.vocabulary = std::int64_t{1} << vocabulary;
        Partition p;
        p.compute = DType::fp64;
        p.sequence_length = std::int64_t{1} << tokens;
        const auto runs = BuildBlocks(network, p);
        if (!runs) {
          continue;
        }
        for (const BlockRun& run : *runs) {
          for (const auto* pass : {&run.block.forward, &run.block.backward}) {
            for (const Action& action : *pass) {
              if (const auto* calculate = std::get_if<Calculate>(&action)) {
                EXPECT_GE(FlopsOf(calculate->op).count(), 0);
                EXPECT_GT(BytesMovedBy(calculate->op).count(), 0) << calculate->name;
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tidemark::network_blocks_test
