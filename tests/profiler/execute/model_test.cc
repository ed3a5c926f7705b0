// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/model.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/profiler/execute/executed_job.h"

namespace tidemark::model_test {
namespace {

// Packed projections have several matrices below each other, each divided by itself, and so do their biases: the place
// of a number of the bias is the row of the weight.
TEST(ModelPlaces, OfABiasAreTheRowsOfItsWeight) {
  Job job = SmallJob("megatron");
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.linear_bias = decoder.qkv_bias = true;
  job.axes.packing = {.qkv = true, .gate_up = true};
  decoder.kv_heads = 2;
  job.layout.tp = 2;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const auto model = Model::Of(job, {rank, 2});
    ASSERT_TRUE(model.ok()) << model.error().Text();
    for (const std::string name : {"layer.qkv", "layer.gate_up"}) {
      const auto weight = model->WeightOf(name), bias = model->WeightOf(name + "_bias");
      ASSERT_TRUE(weight && bias) << name;
      const std::int64_t columns = weight->parameter->elements / weight->parameter->rows;
      const std::vector<std::int64_t> places = model->PlacesOf(*weight), rows = model->PlacesOf(*bias);
      ASSERT_EQ(std::ssize(rows) * columns, std::ssize(places));
      for (std::size_t row = 0; row < rows.size(); ++row) {
        ASSERT_EQ(rows[row], places[row * static_cast<std::size_t>(columns)] / columns) << name << " row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace tidemark::model_test
