// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "models/configs/value.h"
#include "models/job/fields.h"
#include "models/job/job.h"

namespace tidemark::key_values_test {
namespace {

TEST(KeyValues, OfAKeyThatTakesAFewNamesEachReadsBackAsItself) {
  std::set<std::string> named;
  for (const Field<Job>& field : JobFields()) {
    for (const std::string& value : field.values) {
      Job job;
      ASSERT_TRUE(field.read(job, MakeScalar(value, "test")).ok()) << field.key << "=" << value;
      EXPECT_EQ(field.write(job), value) << field.key;
      named.insert(field.key);
    }
    EXPECT_TRUE(field.values.empty() ||
                std::find(field.values.begin(), field.values.end(), field.example) != field.values.end())
        << field.key;
  }
  for (const char* key : {"layout.sp", "recompute.policy", "precision.master", "precision.params", "loss", "schedule",
                          "optimizer", "optimizer_step.kernel", "packing.qkv", "allocator.kind"}) {
    EXPECT_EQ(named.count(key), 1U) << key;
  }
  for (const char* key : {"layout.dp", "sync.bucket_bytes", "sync.expression", "recompute.tp_gather"}) {
    EXPECT_EQ(named.count(key), 0U) << key;
  }
}

}  // namespace
}  // namespace tidemark::key_values_test
