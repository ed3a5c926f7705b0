// SPDX-License-Identifier: Apache-2.0
#include "sim/program/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "sim/lower/lower.h"
#include "sim/predict/predict.h"
#include "sim/program/text.h"
#include "sim/program/walk.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::layers_test {
namespace {

TEST(Layers, AreToldByTheNameOfTheirBlock) {
  EXPECT_EQ(LayerBlockOf("layer.wo.forward"), "layer");
  EXPECT_EQ(LayerBlockOf("layer"), "layer");
  EXPECT_EQ(LayerBlockOf("kept layer.wo.forward"), "kept layer");
  EXPECT_EQ(LayerBlockOf("kept dense.layer.wo.forward"), "kept dense.layer");
  EXPECT_EQ(LayerBlockOf("query.layer.layer.forward"), "query.layer");
  EXPECT_EQ(LayerBlockOf("head.norm"), "");
  EXPECT_EQ(LayerBlockOf("player.one"), "");
  EXPECT_EQ(LayerBlockOf("layers.one"), "");
  EXPECT_EQ(LayerBlockOf(""), "");
}

/// How many operations work for each layer, and how many of those that are named after one for none.
std::map<std::int64_t, std::int64_t> CountByLayer(const Job& job) {
  const Result<StepProgram> step = Lower(job, StepKind::first);
  EXPECT_TRUE(step.ok()) << step.error().Text();
  std::map<std::int64_t, std::int64_t> counts;
  for (const Program& program : step->roles) {
    ForEachLeaf(program, [&](std::size_t at, std::span<const std::int64_t> loops) {
      const auto* compute = std::get_if<Compute>(&program.nodes[at]);
      const bool of_layer = compute != nullptr && !LayerBlockOf(program.names[compute->name.index]).empty() &&
                            program.names[compute->name.index].find(" of ") == std::string::npos &&
                            compute->work == Work::compute;
      const auto layer = LayerOf(program, program.nodes[at], loops);
      if (of_layer || layer) {
        ++counts[layer.value_or(-1)];
      }
      return true;
    });
  }
  return counts;
}

/// Every layer of the model is worked for as all others of its kind are, whatever cuts it into stages and runs. The
/// first `dense` are of a kind of their own.
void ExpectAlike(const Job& job, std::int64_t layers, std::int64_t dense = 0) {
  const std::map<std::int64_t, std::int64_t> counts = CountByLayer(job);
  ASSERT_EQ(static_cast<std::int64_t>(counts.size()), layers);
  std::int64_t next = 0;
  for (const auto& [layer, count] : counts) {
    EXPECT_EQ(layer, next++);
    EXPECT_EQ(count, counts.at(layer < dense ? 0 : dense)) << "layer " << layer;
  }
}

TEST(Layers, AreCountedThroughAllStages) {
  for (const std::int64_t stages : {1, 2, 4}) {
    Job job = OracleJob("nanotron", 4);
    job.layout.pp = stages;
    std::get<Decoder>(job.network.shape).layers = 8;
    ExpectAlike(job, 8);
    job.layout.tp = 2;
    job.layout.sp = true;
    ExpectAlike(job, 8);
  }
  Job job = OracleJob("nanotron", 4);
  job.layout.pp = 2;
  std::get<Decoder>(job.network.shape).layers = 8;
  job.layout.layers_per_stage = {5, 3};
  ExpectAlike(job, 8);
}

TEST(Layers, GoOnWhereTheLastOnesAreARunOfTheirOwn) {
  Job job = OracleJob("fsdp2-defer", 2);
  std::get<Decoder>(job.network.shape).layers = 7;
  job.axes.shard.gathered_layers = 2;
  ExpectAlike(job, 7);
}

TEST(Layers, GoOnBehindThoseThatHaveNoExperts) {
  Job job = OracleJob("megatron", 4);
  auto decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 8;
  decoder.experts = {.count = 8, .ffn = 512, .dense_layers = 3};
  job.network.shape = decoder;
  for (const std::int64_t stages : {1, 2, 4}) {  // the cut lies behind, and within, layers of one kind
    job.layout.pp = stages;
    ExpectAlike(job, 8, 3);
  }
  job = OracleJob("fsdp2-scatter-each", 2);
  job.network.shape = decoder;
  job.axes.shard.gathered_layers = 6;
  ExpectAlike(job, 8, 3);
}

TEST(Layers, WhereTheyStartStandsInTheText) {
  Job job = OracleJob("nanotron", 2);
  job.layout.pp = 2;
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  ASSERT_TRUE(step.ok());
  EXPECT_TRUE(step->roles[0].layers.empty());
  EXPECT_EQ(step->roles[1].layers, (std::vector<LayerRun>{{"layer", 2}}));
  const std::string text = Print(step->roles[1]);
  EXPECT_NE(text.find("layers:\n  layer  from 2\n"), std::string::npos);
  const Result<Program> again = ParseProgram(text);
  ASSERT_TRUE(again.ok()) << again.error().Text();
  EXPECT_EQ(again->layers, step->roles[1].layers);
  EXPECT_EQ(Print(*again), text);
}

TEST(Layers, OfAFamilyAreToldByItsName) {
  Program program;
  program.layers = {{"layer", 8}, {"stage 2 layer", 16}, {"kept layer", 12}};
  const auto layers_of = [&](const std::string& name) {
    Buffer buffer;
    buffer.name = name;
    return LayersOf(program, buffer);
  };
  EXPECT_EQ(layers_of("layer.q"), (FamilyLayers{"layer", 1, 8}));
  EXPECT_EQ(layers_of("dense.layer.q"), (FamilyLayers{"dense.layer", 1, 0})) << "no layer of the others";
  EXPECT_EQ(layers_of("kept layer.q"), (FamilyLayers{"layer", 1, 12}));
  EXPECT_EQ(layers_of("stage 2 layer.q"), (FamilyLayers{"layer", 1, 16}));
  EXPECT_EQ(layers_of("gathered layer.wq"), (FamilyLayers{"layer", 0, 8}));
  EXPECT_EQ(layers_of("moments of kept layer"), (FamilyLayers{"layer", 0, 12}));
  EXPECT_EQ(layers_of("shards of layer 3"), (FamilyLayers{"layer", 0, 11}));
  EXPECT_EQ(layers_of("query.layer.q"), (FamilyLayers{"query.layer", 1, 0}));
  for (const std::string none : {"head.norm", "player.one", "bucket 3", ""}) {
    EXPECT_EQ(layers_of(none), FamilyLayers{}) << none;
  }
}

/// Of every tensor that a layer makes, each layer of the model has as many as each other one, whatever cuts them up.
TEST(Layers, OfATraceHaveEqualSharesOfIt) {
  for (const std::int64_t stages : {1, 2}) {
    Job job = OracleJob("nanotron", 4);
    job.layout.pp = stages;
    std::get<Decoder>(job.network.shape).layers = 6;
    const Result<Prediction> predicted = Predict(job, {});
    ASSERT_TRUE(predicted.ok()) << predicted.error().Text();
    std::map<std::int64_t, std::int64_t> bytes;
    for (const RolePrediction& role : predicted->roles) {
      for (const MemoryEvent& event : role.trace->memory) {
        const TraceTensor& tensor = role.trace->tensors[event.tensor.index];
        if (event.alloc && !tensor.layers.block.empty()) {
          bytes[tensor.layers.first + (tensor.layers.index == 0 ? event.index0 : event.index1)] += tensor.bytes.count();
        }
      }
    }
    ASSERT_EQ(bytes.size(), 6u);
    for (const auto& [layer, of_layer] : bytes) {
      EXPECT_EQ(of_layer, bytes.at(0)) << "layer " << layer << " of " << stages << " stages";
    }
  }
}

}  // namespace
}  // namespace tidemark::layers_test
