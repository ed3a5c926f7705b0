// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "base/text.h"
#include "traces/formats/pickle.h"
#include "traces/formats/pickle_value.h"
#include "traces/formats/torch_fields.h"
#include "traces/formats/torch_frames.h"
#include "traces/formats/torch_settings.h"

namespace tidemark {
namespace {

using Action = TorchEntry::Action;
using Kind = PickleValue::Kind;

/// What this listener puts in the place of containers (PickleValue::size of a record).
enum Record : std::uint32_t { kEntry, kFrame, kPlace, kHistory, kBlock, kSegment, kAnnotation };

std::optional<Action> ActionOf(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Action>, 11> kActions = {{{"alloc", Action::alloc},
                                                                             {"free_requested", Action::free_requested},
                                                                             {"free_completed", Action::free_completed},
                                                                             {"segment_alloc", Action::segment_alloc},
                                                                             {"segment_free", Action::segment_free},
                                                                             {"segment_map", Action::segment_map},
                                                                             {"segment_unmap", Action::segment_unmap},
                                                                             {"oom", Action::oom},
                                                                             {"snapshot", Action::other},
                                                                             {"user_defined", Action::other},
                                                                             {"annotate", Action::other}}};
  const auto* found =
      std::find_if(kActions.begin(), kActions.end(), [&](const auto& row) { return row.first == name; });
  return found == kActions.end() ? std::nullopt : std::optional(found->second);
}

/// Tidemark's own names, and the one of torch.profiler that differs.
Category CategoryOf(std::string_view name) {
  return name == "optimizer_state" ? Category::optimizer : ParseCategory(name).value_or(Category::unknown);
}

/// Turns each dictionary of the file into a row of the snapshot as soon as it is complete.
class Collector : public PickleListener {
 public:
  explicit Collector(std::size_t most_rows) : most_rows_(most_rows) { PlaceOf(""); }

  Result<PickleValue> Finish(const PickleHeap& heap, PickleValue container) override {
    if (container.kind != Kind::dict) {
      return FinishList(heap, container);
    }
    const TorchFields fields(heap, container);
    if (fields.has(TorchKey::action)) {
      return FinishEntry(fields);
    }
    if (fields.has(TorchKey::filename)) {
      return FinishFrame(fields);
    }
    if (fields.has(TorchKey::blocks)) {
      return FinishSegment(heap, fields);
    }
    if (fields.has(TorchKey::state)) {
      return FinishBlock(heap, fields);
    }
    if (fields.has(TorchKey::real_size)) {
      return FinishHistory(fields);
    }
    if (fields.has(TorchKey::role) && fields.has(TorchKey::origin)) {
      return FinishIdentity(heap, fields);
    }
    return fields.has(TorchKey::stage) ? FinishAnnotation(fields) : container;
  }

  /// Fills what the outermost value holds.
  Result<TorchSnapshot> Take(const PickleHeap& heap, PickleValue root) {
    if (root.kind == Kind::list) {  // torch.cuda.memory_snapshot()
      TIDEMARK_TRY(TakeSegments(heap, root));
      return std::move(snapshot_);
    }
    bool is_snapshot = false;
    const std::span<const PickleValue> items = heap.Items(root);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::string_view key = items[i].text();
      is_snapshot = is_snapshot || key == "segments" || key == "device_traces";
      TIDEMARK_TRY(key == "segments"               ? TakeSegments(heap, items[i + 1])
                   : key == "device_traces"        ? TakeTraces(heap, items[i + 1])
                   : key == "external_annotations" ? TakeAnnotations(heap, items[i + 1])
                                                   : TakeSettings(heap, key, items[i + 1]));
    }
    if (!is_snapshot || root.kind != Kind::dict) {
      return BadInput("a snapshot of PyTorch's memory was expected: a dictionary with 'segments' and 'device_traces'",
                      "torch.cuda.memory._dump_snapshot() writes one");
    }
    return std::move(snapshot_);
  }

 private:
  struct Frame {
    FrameTelling telling = FrameTelling::nothing;
    std::uint32_t place = 0;
  };
  struct History {
    std::int64_t n_bytes = 0;
    std::uint32_t place = 0;
  };

  std::uint32_t PlaceOf(const std::string& name) {
    const auto [found, is_new] = places_.try_emplace(name, static_cast<std::uint32_t>(snapshot_.places.size()));
    if (is_new) {
      snapshot_.places.push_back(name);
    }
    return found->second;
  }

  static std::uint32_t PlaceIn(const TorchFields& fields) {
    const PickleValue frames = fields.value(TorchKey::frames);
    return frames.kind == Kind::record && frames.size == kPlace ? static_cast<std::uint32_t>(frames.number) : 0;
  }

  /// A list of frames becomes the place that it tells.
  Result<PickleValue> FinishList(const PickleHeap& heap, PickleValue list) {
    const Frame* best = nullptr;
    for (const PickleValue& item : heap.Items(list)) {
      if (item.kind != Kind::record || item.size != kFrame) {
        return list;
      }
      const Frame& frame = frames_[static_cast<std::size_t>(item.number)];
      if (best == nullptr || frame.telling > best->telling) {
        best = &frame;
      }
    }
    return best == nullptr ? list : PickleValue::Record(kPlace, best->place);
  }

  Result<PickleValue> FinishFrame(const TorchFields& fields) {
    const PickleValue line = fields.value(TorchKey::line);
    const TorchFrame frame = {fields.text(TorchKey::name), fields.text(TorchKey::filename),
                              line.kind == Kind::integer ? line.number : 0};
    frames_.push_back({TellingOf(frame), PlaceOf(PlaceName(frame))});
    return PickleValue::Record(kFrame, frames_.size() - 1);
  }

  Result<PickleValue> FinishEntry(const TorchFields& fields) {
    const std::string of = fmt::format("entry {} of the traces", snapshot_.entries.size());
    TorchEntry entry;
    const std::string_view action = fields.text(TorchKey::action);
    const std::optional<TorchEntry::Action> known = ActionOf(action);
    entry.action = known.value_or(TorchEntry::Action::other);
    if (!known) {
      CountUnknown(action);
    }
    const bool moves = entry.action != TorchEntry::Action::other && entry.action != TorchEntry::Action::oom;
    const std::optional<std::int64_t> otherwise = moves ? std::nullopt : std::optional<std::int64_t>(0);
    TIDEMARK_ASSIGN(const std::int64_t address, fields.Whole(TorchKey::addr, otherwise, of));
    entry.address = static_cast<std::uint64_t>(address);
    TIDEMARK_ASSIGN(entry.n_bytes, moves ? fields.Size(TorchKey::size, {}, of) : Result<std::int64_t>(0));
    TIDEMARK_ASSIGN(entry.stream, fields.Whole(TorchKey::stream, 0, of));
    TIDEMARK_ASSIGN(entry.time_us, fields.Whole(TorchKey::time_us, 0, of));
    snapshot_.has_times = snapshot_.has_times || fields.has(TorchKey::time_us);
    entry.category = CategoryOf(fields.text(TorchKey::category));
    entry.dtype = ParseDType(fields.text(TorchKey::dtype)).value_or(DType::u8);
    entry.place = PlaceIn(fields);
    if (const std::string_view metadata = fields.text(TorchKey::user_metadata); !metadata.empty()) {
      const std::string& place = snapshot_.places[entry.place];
      entry.place = PlaceOf(place.empty() ? SoundName(metadata) : fmt::format("{} ({})", place, SoundName(metadata)));
    }
    snapshot_.entries.push_back(entry);
    return PickleValue::Record(kEntry, snapshot_.entries.size() - 1);
  }

  void CountUnknown(std::string_view action) {
    constexpr std::size_t kNamed = 8;
    const std::string name = SoundName(action);
    const bool named = snapshot_.unknown_actions.contains(name) || snapshot_.unknown_actions.size() < kNamed;
    ++snapshot_.unknown_actions[named ? name : "others"];
  }

  /// Of Tidemark's own files: which trace a device's entries are, in the order of the devices.
  Result<PickleValue> FinishIdentity(const PickleHeap& heap, const TorchFields& fields) {
    TorchIdentity& identity = snapshot_.identities.emplace_back();
    identity.role = SoundName(fields.text(TorchKey::role));
    identity.origin = SoundName(fields.text(TorchKey::origin));
    for (const PickleValue& setting : heap.Items(fields.value(TorchKey::allocator))) {
      identity.allocator.push_back(SoundName(setting.text()));
    }
    return PickleValue();
  }

  /// Of PyTorch 1.13 and 2.0.
  Result<PickleValue> FinishHistory(const TorchFields& fields) {
    TIDEMARK_ASSIGN(const std::int64_t size, fields.Size(TorchKey::real_size, {}, "a block's history"));
    histories_.push_back({size, PlaceIn(fields)});
    return PickleValue::Record(kHistory, histories_.size() - 1);
  }

  Result<PickleValue> FinishBlock(const PickleHeap& heap, const TorchFields& fields) {
    const std::string of = fmt::format("block {}", blocks_.size());
    TorchBlock block;
    const std::string_view state = fields.text(TorchKey::state);
    block.state = state == "active_allocated"   ? TorchBlock::State::allocated
                  : state.starts_with("active") ? TorchBlock::State::pending_free
                                                : TorchBlock::State::inactive;
    TIDEMARK_ASSIGN(block.n_bytes, fields.Size(TorchKey::size, {}, of));
    TIDEMARK_ASSIGN(block.n_requested, fields.Size(TorchKey::requested_size, block.n_bytes, of));
    block.place = PlaceIn(fields);
    const std::span<const PickleValue> history = heap.Items(fields.value(TorchKey::history));
    if (!history.empty() && history[0].kind == Kind::record && history[0].size == kHistory) {
      const History& latest = histories_[static_cast<std::size_t>(history[0].number)];
      block.n_requested = latest.n_bytes;
      block.place = latest.place;
    }
    blocks_.push_back(block);
    return PickleValue::Record(kBlock, blocks_.size() - 1);
  }

  /// Blocks lie behind each other; older snapshots do not tell their addresses.
  Result<PickleValue> FinishSegment(const PickleHeap& heap, const TorchFields& fields) {
    const std::string of = fmt::format("segment {}", made_segments_.size());
    TorchSegment segment;
    segment.first_block = static_cast<std::uint32_t>(snapshot_.blocks.size());
    TIDEMARK_ASSIGN(segment.device, fields.Whole(TorchKey::device, 0, of));
    TIDEMARK_ASSIGN(segment.stream, fields.Whole(TorchKey::stream, 0, of));
    TIDEMARK_ASSIGN(segment.n_bytes, fields.Size(TorchKey::total_size, {}, of));
    TIDEMARK_ASSIGN(const std::int64_t address, fields.Whole(TorchKey::address, 0, of));
    auto at = static_cast<std::uint64_t>(address);
    for (const PickleValue& item : heap.Items(fields.value(TorchKey::blocks))) {
      if (item.kind != Kind::record || item.size != kBlock) {
        return BadInput(fmt::format("a block was expected in the blocks of {}", of));
      }
      TIDEMARK_TRY(CountRow());
      TorchBlock block = blocks_[static_cast<std::size_t>(item.number)];
      block.address = at;
      at += static_cast<std::uint64_t>(block.n_bytes);
      snapshot_.blocks.push_back(block);
    }
    segment.blocks = static_cast<std::uint32_t>(snapshot_.blocks.size()) - segment.first_block;
    made_segments_.push_back(segment);
    return PickleValue::Record(kSegment, made_segments_.size() - 1);
  }

  Result<PickleValue> FinishAnnotation(const TorchFields& fields) {
    TorchAnnotation annotation;
    TIDEMARK_ASSIGN(annotation.device, fields.Whole(TorchKey::device, TorchAnnotation::kEveryDevice, "an annotation"));
    TIDEMARK_ASSIGN(annotation.time_us, fields.Whole(TorchKey::time_us, 0, "an annotation"));
    annotation.begins = fields.text(TorchKey::stage) != "END";
    annotation.name = SoundName(fields.text(TorchKey::name));
    annotations_.push_back(std::move(annotation));
    return PickleValue::Record(kAnnotation, annotations_.size() - 1);
  }

  /// A file may name the same list again and again; no writer does.
  Status CountRow() {
    if (++rows_ > most_rows_) {
      return BadInput("the pickle repeats its own lists until they are longer than the file");
    }
    return Done{};
  }

  Status TakeSegments(const PickleHeap& heap, PickleValue list) {
    for (const PickleValue& item : heap.Items(list)) {
      if (item.kind != Kind::record || item.size != kSegment) {
        return BadInput("a segment, a dictionary with 'blocks', was expected in the snapshot's segments",
                        "torch.cuda.memory._dump_snapshot() writes them");
      }
      TIDEMARK_TRY(CountRow());
      snapshot_.segments.push_back(made_segments_[static_cast<std::size_t>(item.number)]);
    }
    return Done{};
  }

  Status TakeTraces(const PickleHeap& heap, PickleValue list) {
    constexpr std::size_t kMostDevices = 128;
    for (const PickleValue& trace : heap.Items(list)) {
      if (trace.kind != Kind::list || snapshot_.traces.size() == kMostDevices) {
        return BadInput("a list of entries for each device was expected in 'device_traces'");
      }
      std::vector<std::uint32_t>& rows = snapshot_.traces.emplace_back();
      for (const PickleValue& item : heap.Items(trace)) {
        if (item.kind != Kind::record || item.size != kEntry) {
          return BadInput("an entry, a dictionary with an 'action', was expected in a device's trace");
        }
        TIDEMARK_TRY(CountRow());
        rows.push_back(static_cast<std::uint32_t>(item.number));
      }
    }
    return Done{};
  }

  Status TakeAnnotations(const PickleHeap& heap, PickleValue list) {
    for (const PickleValue& item : heap.Items(list)) {
      if (item.kind == Kind::record && item.size == kAnnotation) {
        TIDEMARK_TRY(CountRow());
        snapshot_.annotations.push_back(annotations_[static_cast<std::size_t>(item.number)]);
      }
    }
    return Done{};
  }

  Status TakeSettings(const PickleHeap& heap, std::string_view key, PickleValue settings) {
    if (key != "allocator_settings") {
      return Done{};
    }
    snapshot_.settings = TorchSettings(heap, settings);
    const std::span<const PickleValue> items = heap.Items(settings);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i].text() == "trace_alloc_overflowed") {
        const PickleValue told = items[i + 1];
        const std::span<const PickleValue> by_device = heap.Items(told);
        const auto is_true = [](const PickleValue& value) { return value.kind == Kind::boolean && value.number != 0; };
        snapshot_.overflowed = is_true(told) || std::any_of(by_device.begin(), by_device.end(), is_true);
      }
    }
    return Done{};
  }

  std::size_t most_rows_, rows_ = 0;
  TorchSnapshot snapshot_;
  std::map<std::string, std::uint32_t> places_;
  std::vector<Frame> frames_;
  std::vector<History> histories_;
  std::vector<TorchBlock> blocks_;
  std::vector<TorchSegment> made_segments_;
  std::vector<TorchAnnotation> annotations_;
};

}  // namespace

Result<TorchSnapshot> ReadTorchSnapshot(std::string_view bytes) {
  Collector collector(bytes.size());
  PickleHeap heap;
  TIDEMARK_ASSIGN(const PickleValue root, ReadPickle(bytes, heap, collector));
  return collector.Take(heap, root);
}

}  // namespace tidemark
