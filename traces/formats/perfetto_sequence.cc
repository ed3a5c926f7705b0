// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/perfetto_sequence.h"

#include <utility>

namespace tidemark {

perfetto::TracePacket& PerfettoSequence::Begin(Nanos at) {
  perfetto::TracePacket& packet = this->packet();
  packet.Clear();
  packet.set_timestamp(static_cast<std::uint64_t>(at.count()) - static_cast<std::uint64_t>(file_.zero.count()));
  packet.set_trusted_packet_sequence_id(id_);
  if (std::exchange(first_, false)) {
    packet.set_first_packet_on_sequence(true);
    packet.set_sequence_flags(perfetto::TracePacket::SEQ_INCREMENTAL_STATE_CLEARED |
                              perfetto::TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
  } else {
    packet.set_sequence_flags(perfetto::TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
  }
  return packet;
}

perfetto::TrackEvent& PerfettoSequence::Event(Nanos at, std::uint64_t track, perfetto::TrackEvent::Type type) {
  perfetto::TrackEvent& event = *Begin(at).mutable_track_event();
  event.set_track_uuid(track);
  event.set_type(type);
  return event;
}

perfetto::TrackDescriptor& PerfettoSequence::Descriptor(std::uint64_t uuid) {
  perfetto::TrackDescriptor& descriptor = *Begin(file_.zero).mutable_track_descriptor();
  descriptor.set_uuid(uuid);
  return descriptor;
}

std::uint64_t PerfettoSequence::EventName(std::string_view name) {
  const auto [place, is_new] = event_names_.try_emplace(std::string(name), event_names_.size() + 1);
  if (is_new) {
    perfetto::InternedName& interned = *packet().mutable_interned_data()->add_event_names();
    interned.set_iid(place->second);
    interned.set_name(place->first);
  }
  return place->second;
}

std::uint64_t PerfettoSequence::EventCategory(std::string_view name) {
  const auto [place, is_new] = categories_.try_emplace(std::string(name), categories_.size() + 1);
  if (is_new) {
    perfetto::InternedName& interned = *packet().mutable_interned_data()->add_event_categories();
    interned.set_iid(place->second);
    interned.set_name(place->first);
  }
  return place->second;
}

void PerfettoSequence::Emit() { trace_.AppendToString(&file_.bytes); }

}  // namespace tidemark
