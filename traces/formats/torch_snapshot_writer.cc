// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_snapshot_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

#include "base/category.h"
#include "traces/formats/pickle_writer.h"
#include "traces/formats/torch_replay.h"
#include "traces/formats/torch_settings.h"
#include "traces/formats/torch_trace.h"

namespace tidemark {
namespace {

using Action = TorchEntry::Action;

std::string_view NameOf(Action action) {
  switch (action) {
    case Action::alloc:
      return "alloc";
    case Action::free_requested:
      return "free_requested";
    case Action::free_completed:
      return "free_completed";
    case Action::segment_alloc:
      return "segment_alloc";
    case Action::segment_free:
      return "segment_free";
    case Action::segment_map:
      return "segment_map";
    case Action::segment_unmap:
      return "segment_unmap";
    case Action::oom:
      return "oom";
    case Action::other:
      break;
  }
  return "snapshot";
}

/// "forward#3", as TorchScopes reads it.
std::string ScopeOf(const Span& span) {
  const std::string phase = span.side.empty() ? span.phase : fmt::format("{} ({})", span.phase, span.side);
  return span.microbatch < 0 ? phase : fmt::format("{}#{}", phase, span.microbatch);
}

struct Scope {
  Nanos begin, end;
  std::string name;
};

/// Outer ones first. A step is outside of its phases.
std::vector<Scope> ScopesOf(const Trace& trace) {
  std::vector<Scope> scopes;
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    scopes.push_back({trace.steps[i].begin, trace.steps[i].end, fmt::format("{}#{}", kTorchStep, i)});
  }
  for (const Span& span : trace.spans) {
    scopes.push_back({span.begin, span.end, ScopeOf(span)});
  }
  std::stable_sort(scopes.begin(), scopes.end(), [](const Scope& a, const Scope& b) { return a.begin < b.begin; });
  return scopes;
}

/// Writes one key of the snapshot after the other.
class SnapshotWriter {
 public:
  SnapshotWriter(std::span<const Trace> traces, std::string& out) : traces_(traces), pickle_(out) {}

  Status Write() {
    pickle_.BeginDict();
    pickle_.Text("device_traces");
    PickleWriter::List devices(pickle_);
    for (const Trace& trace : traces_) {
      devices.Item();
      TIDEMARK_TRY(WriteTrace(trace));
    }
    devices.End();
    WriteSegments();
    WriteAnnotations();
    WriteIdentities();
    WriteSettings();
    pickle_.EndDict();
    pickle_.End();
    return Done{};
  }

 private:
  struct Device {
    TorchReplay replay;
    std::map<std::pair<std::uint32_t, std::uint16_t>, std::uint32_t> stacks;  // by tensor and phase: remembered
  };

  void Set(std::string_view key, std::int64_t value) {
    pickle_.Text(key);
    pickle_.Whole(value);
  }
  void SetText(std::string_view key, std::string_view value) {
    pickle_.Text(key);
    pickle_.Text(value);
  }
  void SetFlag(std::string_view key, bool value) {
    pickle_.Text(key);
    pickle_.Boolean(value);
  }

  Status WriteTrace(const Trace& trace) {
    devices_.push_back({TorchReplay(trace, TorchReplay::ServingAddresses(trace)), {}});
    Device& device = devices_.back();
    PickleWriter::List entries(pickle_);
    const bool fits = device.replay.Run([&](const TorchStep& step) {
      entries.Item();
      WriteEntry(trace, device, step);
    });
    entries.End();
    return fits ? Status(Done{})
                : BadInput(
                      fmt::format("the trace of {} allocates more than 1 PiB, or a tensor of more than 4 TiB, which "
                                  "no snapshot holds",
                                  trace.role));
  }

  void WriteEntry(const Trace& trace, Device& device, const TorchStep& step) {
    pickle_.BeginDict();
    SetText("action", NameOf(step.action));
    Set("addr", static_cast<std::int64_t>(step.address));
    Set("size", step.n_bytes);
    Set("stream", step.stream);
    Set("time_us", step.time_us);
    pickle_.Text("frames");
    if (step.action == TorchEntry::Action::alloc) {
      WriteStack(trace, device, step.event);
      const TraceTensor& tensor = trace.tensors[trace.memory[step.event].tensor.index];
      SetText("category", Name(tensor.category));
      if (IsTold(tensor.dtype, tensor.category)) {
        SetText("dtype", Name(tensor.dtype));
      }
    } else {
      PickleWriter::List(pickle_).End();
    }
    if (step.action == TorchEntry::Action::oom) {
      Set("device_free", 0);
    }
    // Where no entry is of the category "unknown", MemoryViz.js adds it to a list whose name it spells wrong, and
    // stops.
    if (step.action == TorchEntry::Action::segment_alloc) {
      SetText("category", Name(Category::unknown));
    }
    pickle_.EndDict();
  }

  void WriteStack(const Trace& trace, Device& device, std::size_t index) {
    const MemoryEvent& event = trace.memory[index];
    const auto known = device.stacks.find({event.tensor.index, event.span});
    if (known != device.stacks.end()) {
      return pickle_.Get(known->second);
    }
    const TraceTensor& tensor = trace.tensors[event.tensor.index];
    PickleWriter::List frames(pickle_);
    const auto add = [&](std::string_view name, std::string_view file) {
      frames.Item();
      pickle_.BeginDict();
      SetText("name", name);
      SetText("filename", file);
      Set("line", std::int64_t{0});
      pickle_.EndDict();
    };
    add(tensor.name, "tensor");
    add(Name(tensor.category), "category");
    if (event.span != kNoSpan) {
      add(ScopeOf(trace.spans[event.span]), "phase");
    }
    frames.End();
    device.stacks[{event.tensor.index, event.span}] = pickle_.Put();
  }

  /// Beside what PyTorch's files have: of which traces these are, for when they are read back.
  void WriteIdentities() {
    pickle_.Text("tidemark");
    PickleWriter::List identities(pickle_);
    for (const Trace& trace : traces_) {
      identities.Item();
      pickle_.BeginDict();
      SetText("role", trace.role);
      SetText("origin", trace.origin);
      pickle_.Text("allocator");
      PickleWriter::List settings(pickle_);
      for (const std::string& setting : trace.allocator) {
        settings.Item();
        pickle_.Text(setting);
      }
      settings.End();
      pickle_.EndDict();
    }
    identities.End();
  }

  /// For viewers, which know one setting for all devices: the first trace's.
  void WriteSettings() {
    const bool any_mapped = std::ranges::any_of(devices_, [](const Device& device) {
      return std::ranges::any_of(device.replay.segments().segments(), [](const auto& at) { return at.second.mapped; });
    });
    const std::string conf = traces_.empty() ? std::string() : TorchAllocConf(traces_.front().allocator);
    pickle_.Text("allocator_settings");
    pickle_.BeginDict();
    SetText("PYTORCH_CUDA_ALLOC_CONF", conf);
    SetFlag("expandable_segments", any_mapped || conf.find("expandable_segments:True") != std::string::npos);
    pickle_.EndDict();
  }

  void WriteSegments() {
    pickle_.Text("segments");
    PickleWriter::List segments(pickle_);
    for (std::size_t i = 0; i < traces_.size(); ++i) {
      for (const auto& [address, segment] : devices_[i].replay.segments().segments()) {
        segments.Item();
        WriteSegment(i, address, segment);
      }
    }
    segments.End();
  }

  void WriteSegment(std::size_t device, std::uint64_t address, const TorchSegments::Segment& segment) {
    constexpr std::int64_t kSmallSegment = std::int64_t{2} << 20;  // of small blocks, as the caching allocator makes it
    const auto& live = devices_[device].replay.live();
    const std::uint64_t end = address + static_cast<std::uint64_t>(segment.n_bytes);
    std::int64_t active = 0, allocated = 0, requested = 0;
    for (auto block = live.lower_bound(address); block != live.end() && block->first < end; ++block) {
      active += block->second.n_bytes;
      allocated += block->second.pending ? 0 : block->second.n_bytes;
      requested += RequestOf(device, block->second.event);
    }
    pickle_.BeginDict();
    Set("device", static_cast<std::int64_t>(device));
    Set("address", static_cast<std::int64_t>(address));
    Set("total_size", segment.n_bytes);
    Set("allocated_size", allocated);
    Set("active_size", active);
    Set("requested_size", requested);
    Set("stream", segment.stream);
    SetText("segment_type", segment.n_bytes == kSmallSegment ? "small" : "large");
    pickle_.Text("segment_pool_id");
    pickle_.Pair(0, 0);
    SetFlag("is_expandable", segment.mapped);
    pickle_.Text("frames");
    PickleWriter::List(pickle_).End();
    pickle_.Text("blocks");
    WriteBlocks(device, address, end);
    pickle_.EndDict();
  }

  std::int64_t RequestOf(std::size_t device, std::size_t event) const {
    const Trace& trace = traces_[device];
    return trace.tensors[trace.memory[event].tensor.index].bytes.count();
  }

  /// Blocks fill a segment without a gap.
  void WriteBlocks(std::size_t device, std::uint64_t begin, std::uint64_t end) {
    const auto& live = devices_[device].replay.live();
    PickleWriter::List blocks(pickle_);
    std::uint64_t at = begin;
    const auto add_idle = [&](std::uint64_t until) {
      if (at < until) {
        blocks.Item();
        WriteBlock(at, static_cast<std::int64_t>(until - at), 0, "inactive");
        PickleWriter::List(pickle_).End();
        pickle_.EndDict();
      }
    };
    for (auto block = live.lower_bound(begin); block != live.end() && block->first < end; ++block) {
      add_idle(block->first);
      blocks.Item();
      WriteBlock(block->first, block->second.n_bytes, RequestOf(device, block->second.event),
                 block->second.pending ? "active_pending_free" : "active_allocated");
      WriteStack(traces_[device], devices_[device], block->second.event);
      pickle_.EndDict();
      at = block->first + static_cast<std::uint64_t>(block->second.n_bytes);
    }
    add_idle(end);
    blocks.End();
  }

  /// All but its frames and its end.
  void WriteBlock(std::uint64_t address, std::int64_t n_bytes, std::int64_t requested, std::string_view state) {
    pickle_.BeginDict();
    Set("address", static_cast<std::int64_t>(address));
    Set("size", n_bytes);
    Set("requested_size", requested);
    SetText("state", state);
    pickle_.Text("frames");
  }

  void WriteAnnotations() {
    pickle_.Text("external_annotations");
    PickleWriter::List annotations(pickle_);
    for (std::size_t device = 0; device < traces_.size(); ++device) {
      const std::vector<Scope> scopes = ScopesOf(traces_[device]);
      const auto ends_later = [&](std::size_t a, std::size_t b) {
        return std::pair(scopes[a].end, b) > std::pair(scopes[b].end, a);  // of equal ends the inner one first
      };
      std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(ends_later)> open(ends_later);
      const auto add = [&](const Scope& scope, bool begins) {
        annotations.Item();
        pickle_.BeginDict();
        SetText("name", scope.name);
        SetText("stage", begins ? "START" : "END");
        Set("device", static_cast<std::int64_t>(device));
        Set("time_us", (begins ? scope.begin : scope.end).count() / 1000);
        pickle_.EndDict();
      };
      for (std::size_t i = 0; i <= scopes.size(); ++i) {
        for (; !open.empty() && (i == scopes.size() || scopes[open.top()].end <= scopes[i].begin); open.pop()) {
          add(scopes[open.top()], false);
        }
        if (i < scopes.size()) {
          add(scopes[i], true);
          open.push(i);
        }
      }
    }
    annotations.End();
  }

  std::span<const Trace> traces_;
  PickleWriter pickle_;
  std::vector<Device> devices_;
};

}  // namespace

Result<std::string> WriteTorchSnapshot(std::span<const Trace> traces) {
  std::string out;
  TIDEMARK_TRY(SnapshotWriter(traces, out).Write());
  return out;
}

}  // namespace tidemark
