// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "models/machine/device_bytes.h"
#include "reports/summarise/prediction.h"
#include "traces/trace.h"

namespace tidemark {

/// The size of a made-up training step.
struct SampleSize {
  std::int64_t microbatches = 4, layers = 12;
};

/// A trace that looks like training: resident parameters and optimizer states; per microbatch a forward pass that piles
/// up activations, logits, and a backward pass that takes them down while gradients and buckets come; then the
/// optimizer. The host runs ahead of the device. Eight memory events and four slices for each layer and microbatch.
class SampleTrace {
 public:
  explicit SampleTrace(SampleSize size) : size_(size) {
    trace_.origin = "predicted";
    trace_.tool_version = "0.1.0";
    trace_.title = "a made-up job";
    trace_.role = "stage 0";
    trace_.ranks = 8;
    trace_.device_memory = Bytes(std::int64_t{80} << 30);
    trace_.strings = {"attention", "feed_forward", "all_gather", "reduce_scatter", "issue", "adamw"};
    trace_.streams = {
        {"host", "host"}, {"compute", "compute"}, {"all_gather", "collective"}, {"reduce_scatter", "collective"}};
    const std::int64_t m = std::int64_t{1} << 20;
    Tensor("layer.parameters", Category::parameter, 300 * m);
    Tensor("layer.moments", Category::optimizer, 600 * m);
    Tensor("layer.gradients", Category::gradient, 300 * m);
    Tensor("layer.attention.saved", Category::activation, 420 * m);
    Tensor("layer.ffn.saved", Category::activation, 560 * m);
    Tensor("layer.transient", Category::activation, 640 * m);
    Tensor("bucket.gather", Category::bucket, 600 * m);
    Tensor("bucket.scatter", Category::bucket, 600 * m);
    Tensor("head.logits", Category::logits, 4000 * m);
    Tensor("tokens", Category::input, 2 * m);
  }

  Trace Make() {
    for (std::int32_t layer = 0; layer < size_.layers; ++layer) {
      Memory(true, 0, layer);
      Memory(true, 1, layer);
    }
    for (std::int64_t microbatch = 0; microbatch < size_.microbatches; ++microbatch) {
      Forward(microbatch);
      Backward(microbatch);
    }
    Optimize();
    trace_.step = device_;
    return trace_;
  }

 private:
  void Tensor(const std::string& name, Category category, std::int64_t n_bytes) {
    trace_.tensors.push_back({name, category, DType::bf16, Bytes(n_bytes)});
    trace_.tensors.back().layers.block = name.starts_with("layer.") ? "layer" : "";
  }

  void Memory(bool alloc, std::uint32_t tensor, std::int32_t member) {
    const Bytes bytes = trace_.tensors[tensor].bytes;
    total_ = alloc ? total_ + bytes : total_ - bytes;
    reserved_ = std::max(reserved_, total_ + Bytes(std::int64_t{700} << 20));
    MemoryEvent event;
    event.alloc = alloc;
    event.tensor = TensorNameId{tensor};
    event.index0 = member;
    event.issue = host_;
    event.ready = std::max(host_, device_);
    event.span = span_;
    event.allocator_bytes = total_ + Bytes(total_.count() / 100);
    event.reserved_bytes = reserved_;
    trace_.memory.push_back(event);
  }

  void Work(std::uint16_t stream, std::uint32_t name, std::int64_t nanos) {
    trace_.slices.push_back({0, TraceStringId{4}, host_, host_ + Nanos(9000)});
    host_ += Nanos(10000);
    Nanos& free = stream == 1 ? device_ : collective_;
    const Nanos start = std::max(free, host_);
    free = start + Nanos(nanos);
    trace_.slices.push_back({stream, TraceStringId{name}, start, free});
  }

  void Begin(const std::string& phase, std::int64_t microbatch) {
    span_ = static_cast<std::uint16_t>(trace_.spans.size());
    trace_.spans.push_back({phase, microbatch, host_, host_});
  }

  void End() {
    trace_.spans[span_].end = host_;
    span_ = kNoSpan;
  }

  void Forward(std::int64_t microbatch) {
    Begin("forward", microbatch);
    Memory(true, 9, 0);
    for (std::int32_t layer = 0; layer < size_.layers; ++layer) {
      Memory(true, 6, layer);
      Work(2, 2, 700000);
      Memory(true, 3, layer);
      Work(1, 0, 1100000 + 1000 * layer);
      Memory(true, 4, layer);
      Memory(false, 6, layer);
      Work(1, 1, 1600000);
    }
    Memory(true, 8, 0);
    Work(1, 1, 900000);
    End();
  }

  void Backward(std::int64_t microbatch) {
    Begin("backward", microbatch);
    for (std::int32_t layer = static_cast<std::int32_t>(size_.layers) - 1; layer >= 0; --layer) {
      Memory(true, 5, layer);
      Work(1, 1, 3200000);
      if (layer == size_.layers - 1) {
        Memory(false, 8, 0);
      }
      Memory(false, 4, layer);
      if (microbatch == 0) {
        Memory(true, 2, layer);
      }
      Work(1, 0, 2300000);
      Memory(false, 3, layer);
      Memory(false, 5, layer);
      if (microbatch + 1 == size_.microbatches) {
        Memory(true, 7, layer);
        Work(3, 3, 1500000);
        Memory(false, 7, layer);
      }
    }
    Memory(false, 9, 0);
    End();
  }

  void Optimize() {
    Begin("optimizer", -1);
    Work(1, 5, 6000000);
    for (std::int32_t layer = 0; layer < size_.layers; ++layer) {
      Memory(false, 2, layer);
    }
    End();
  }

  SampleSize size_;
  Trace trace_;
  Bytes total_, reserved_;
  Nanos host_, device_, collective_;
  std::uint16_t span_ = kNoSpan;
};

inline RoleReport SampleRole(const std::string& name, SampleSize size) {
  RoleReport role;
  role.role = name;
  role.ranks = 8;
  role.trace = SampleTrace(size).Make();
  role.trace->role = name;
  role.peak = SummarisePeak(*role.trace);
  role.phases = SummarisePhases(*role.trace);
  role.allocator_bytes = role.peak.allocated + Bytes(role.peak.allocated.count() / 100);
  role.reserved = role.peak.allocated + Bytes(std::int64_t{700} << 20);
  role.minimum = role.reserved;
  Machine machine;
  machine.context = {Bytes(300 << 20), Bytes(450 << 20), Bytes(600 << 20)};
  machine.communicator = Bytes(500 << 20);
  machine.workspace = Bytes(32 << 20);
  role.device = DeviceBytes(machine, {role.peak.allocated, role.reserved, 1});
  return role;
}

/// A report with something in every field.
inline PredictionReport SampleReport(SampleSize size = {}) {
  PredictionReport report;
  report.title = "llama-3-8b, fsdp2-scatter-each, 16 ranks (dp 8, pp 2), 4 microbatches of 1 x 8192 tokens";
  report.job_yaml =
      "network: llama-3-8b\nlayout: {dp: 8, pp: 2}\nstrategy: fsdp2-scatter-each\nquoted: \"8\"\nnone: null\n";
  report.machine = "h100-sxm-80gb";
  report.machine_assumed = true;
  report.device_memory = report.usable_memory = Bytes(std::int64_t{80} << 30);
  report.roles.push_back(SampleRole("stage 0", size));
  report.roles.push_back(SampleRole("stage 1", {size.microbatches, size.layers / 2}));
  const Nanos step = report.roles[0].trace->step;
  report.steps = {{"steady", 1, step, report.roles[0].peak.allocated, report.roles[0].reserved}};
  report.time = {step, step * 6 / 10, step / 10, step / 20, step / 20, step / 10, Nanos(0), "stage 0"};
  report.time.host = step - step * 6 / 10 - step / 10 - step / 20 - step / 20 - step / 10;
  report.throughput = {11702.5, 402.25, 0.4067, 0.51};
  report.communication.push_back(
      {"all_gather", "dp", DType::bf16, 264, Bytes(std::int64_t{60} << 30), Bytes(std::int64_t{52} << 30)});
  report.communication.push_back(
      {"reduce_scatter", "dp", DType::fp32, 132, Bytes(std::int64_t{120} << 30), Bytes(std::int64_t{105} << 30)});
  report.lints.push_back({"sync-every-microbatch", "warning",
                          "gradients are reduce-scattered in every microbatch, which multiplies the traffic by 4",
                          "fsdp2-defer scatters only once, for 2.5 GiB more"});
  report.provenance = {"0.1.0",
                       {"tensors", "caching allocator", "kernels by roofline", "collectives by latency and bandwidth"},
                       {},
                       {},
                       {"machine h100-sxm-80gb: the config names none"},
                       {"contention between collectives", "data loading"}};
  return report;
}

}  // namespace tidemark
