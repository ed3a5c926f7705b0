// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "models/configs/tool_fields.h"
#include "models/configs/value.h"

namespace tidemark {

/// A job of torchtitan's, with what the command line says behind its config: what configs in TOML and those that are
/// saved since say alike. A reader of either is a class on top of this, which reads the rest.
class TorchtitanJob {
 protected:
  static constexpr std::string_view kOffload = "training.enable_cpu_offload";

  /// Both must outlive this.
  TorchtitanJob(const ConfigValue& root, const Settings& given) : fields_(root, "torchtitan"), given_(given) {}

  void Put(const std::string& key, std::string_view path, std::string_view absent, std::string text) {
    settings_[key] = fields_.Retold(path, absent, std::move(text));
  }
  /// What the job will say of a key that is given or read already; null of one that is neither.
  const ConfigValue* Saying(const std::string& key) const;
  std::string Said(const std::string& key) const;
  bool IsPipeline() const { return Said("layout.pp") != "1"; }
  bool DividesExperts() const;

  /// Ranks, as long as they are counted in the config or given. First of all.
  Status ReadLayout();
  /// Ranks of a layer's experts, and what comes with them: then each layer is gathered while the one before it runs
  /// forward (apply_fsdp_to_decoder: set_modules_to_forward_prefetch).
  Status ReadExpertRanks();
  /// FSDP2 as the trainer uses it, which never calls set_requires_gradient_sync: every microbatch reduces, and in a
  /// pipeline the last one for all.
  Status ReadSharding();
  /// A pipeline's schedule and stages where nobody gives them. The network is what is given or read already.
  Status ReadStages();
  Status ReadPrecision();
  /// What torch.compile fuses, eager code does in single operations; it also drops what nobody reads. Behind what is
  /// done again.
  Status ReadCompiling();

  /// Products that are done again by their shapes, but for a router's gate, which of a network with experts must be.
  Status RefuseForcedShapes(const std::string& path) const;
  /// More than one flush of a pipeline of so many microbatches, which the field at `path` asks for.
  Status RefuseFlushes(std::string_view path, std::int64_t flushes, std::int64_t microbatches) const;

  /// All that was read, with what torchtitan never says otherwise.
  Settings Finish();

  const ToolFields fields_;
  const Settings& given_;
  Settings settings_;
  std::int64_t ranks_ = 1;     ///< data-parallel ones
  std::int64_t replicas_ = 1;  ///< of the shards, among these

 private:
  Result<std::int64_t> Layers() const;
};

}  // namespace tidemark
