// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/quantity.h"
#include "traces/formats/perfetto.pb.h"

namespace tidemark {

/// What the packets of one file share.
struct PerfettoFile {
  std::string bytes;
  Nanos zero;                   ///< the time that is 0 in the file: readers drop what is before their 0
  std::uint64_t next_uuid = 1;  ///< of tracks; 0 is the root
  std::uint64_t next_flow = 1;
};

/// The packets of one process of a Perfetto trace: a sequence with a name table of its own. They are appended to the
/// file as they come, each serialised by Protobuf, so that memory is bounded by the file.
class PerfettoSequence {
 public:
  /// `id` is not 0, and different from that of the file's other sequences.
  PerfettoSequence(PerfettoFile& file, std::uint32_t id) : file_(file), id_(id) { trace_.add_packet(); }

  /// What follows has this time, on this track.
  perfetto::TrackEvent& Event(Nanos at, std::uint64_t track, perfetto::TrackEvent::Type type);
  /// Valid from the file's beginning on.
  perfetto::TrackDescriptor& Descriptor(std::uint64_t uuid);
  /// Of the packet that Event or Descriptor began: what this sequence's later events mean without saying it.
  perfetto::TracePacketDefaults& Defaults() { return *packet().mutable_trace_packet_defaults(); }
  /// The number that stands for a name from here on; the packet tells it where it is new.
  std::uint64_t EventName(std::string_view name);
  std::uint64_t EventCategory(std::string_view name);
  /// Ends the packet.
  void Emit();

  PerfettoFile& file() { return file_; }

 private:
  using Names = std::unordered_map<std::string, std::uint64_t>;

  perfetto::TracePacket& packet() { return *trace_.mutable_packet(0); }
  perfetto::TracePacket& Begin(Nanos at);

  PerfettoFile& file_;
  std::uint32_t id_;
  bool first_ = true;
  perfetto::Trace trace_;  ///< of one packet, used again and again
  Names event_names_, categories_;
};

}  // namespace tidemark
