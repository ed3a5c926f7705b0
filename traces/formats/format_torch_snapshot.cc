// SPDX-License-Identifier: Apache-2.0
//
// The pickle of torch.cuda.memory._snapshot(), which torch.cuda.memory._dump_snapshot() writes and PyTorch's memory_viz
// draws. Read by traces/formats/torch_snapshot.cc, put into time by torch_history.cc, written by
// torch_snapshot_writer.cc.
#include "traces/formats/format.h"

#include <algorithm>
#include <string>
#include <vector>

#include "traces/formats/pickle.h"
#include "traces/formats/torch_replay.h"
#include "traces/formats/torch_snapshot.h"
#include "traces/formats/torch_snapshot_writer.h"
#include "traces/formats/torch_trace.h"

namespace tidemark {
namespace {

class TorchSnapshotFormat : public TraceFormat {
 public:
  std::string_view name() const override { return "torch-snapshot"; }
  std::string_view summary() const override { return "PyTorch's memory snapshot, a pickle that memory_viz opens"; }
  bool reads() const override { return true; }
  bool writes() const override { return true; }
  std::vector<std::string_view> endings() const override { return {".pickle", ".pkl"}; }
  bool Sniff(std::string_view head) const override { return LooksLikePickle(head); }

  Result<TraceFile> Read(std::string_view bytes) const override {
    TIDEMARK_ASSIGN(const TorchSnapshot snapshot, ReadTorchSnapshot(bytes));
    return TracesOf(snapshot);
  }

  Result<std::string> Write(std::span<const Trace> traces) const override { return WriteTorchSnapshot(traces); }

  std::vector<std::string> Loses(const Trace& trace) const override {
    std::vector<std::string> lost;
    if (!trace.slices.empty()) {
      lost.emplace_back("work of streams");
    }
    if (!trace.memory.empty() && !Tells(trace, &MemoryEvent::reserved_bytes)) {
      lost.emplace_back("that reserved memory is not known: what is alive stands for it");
    }
    if (TorchReplay::ServingAddresses(trace) == TorchReplay::Addresses::own) {
      lost.emplace_back("where blocks lie, which is not known or nothing that it can tell: each lies by itself");
    }
    if (RoundsOtherwise(trace)) {
      lost.emplace_back("sizes of blocks: it rounds what was asked for up to 512 bytes");
    }
    if (!trace.missing.empty()) {
      lost.emplace_back("that it is cut short");
    }
    const auto within_a_microsecond = [](const MemoryEvent& event) { return event.issue.count() % 1000 != 0; };
    if (!trace.spans.empty() && std::ranges::any_of(trace.memory, within_a_microsecond)) {
      lost.emplace_back("times below a microsecond, so that where two phases meet an event may be in the other one");
    }
    return lost;
  }

 private:
  /// Whether some block has another size than its request rounded up.
  static bool RoundsOtherwise(const Trace& trace) {
    if (!Tells(trace, &MemoryEvent::allocator_bytes)) {
      return false;
    }
    Bytes before;
    for (const MemoryEvent& event : trace.memory) {
      const std::int64_t requested = trace.tensors[event.tensor.index].bytes.count();
      if (event.alloc && (event.allocator_bytes - before).count() != RoundUp(requested, std::int64_t{512})) {
        return true;
      }
      before = event.allocator_bytes;
    }
    return false;
  }
};

}  // namespace

std::unique_ptr<TraceFormat> FormatTorchSnapshot() { return std::make_unique<TorchSnapshotFormat>(); }

}  // namespace tidemark
