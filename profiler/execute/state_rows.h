// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tidemark {

/// What an operation of a system does with its operands.
enum class Does : std::uint8_t {
  copy,   ///< what is written gets the same numbers of what is read, cast and scaled
  add,    ///< they are added to each other, and to what is there if that is read as well
  scale,  ///< what is there is scaled
  zero,
  own_rows,  ///< of a mask, those of this rank's share of each sequence
  pack,  ///< as copy; into a buffer that does not say what it holds: behind what was put in before, where it is kept
  take,  ///< as copy, of what is shared, however little
  add_taken,   ///< as add, of what is shared, however little
  add_alike,   ///< as add, number by number, of a buffer that does not say what it holds
  interleave,  ///< as pack, with one rank's parts of all parameters behind the other's
};

struct StateRow {
  std::string_view name;
  Does does;
};

/// Every operation that systems have around the network, by the name that sim/strategies and sim/lower give it.
inline constexpr std::array kStateRows = {
    StateRow{"accumulate averaged gradients", Does::add},
    StateRow{"accumulate dummy gradient", Does::add_alike},
    StateRow{"accumulate flat gradient", Does::add},
    StateRow{"accumulate gradient", Does::add},
    StateRow{"accumulate mean", Does::add},
    StateRow{"accumulate partly reduced gradient", Does::add},
    StateRow{"accumulate sharded gradient", Does::add},
    StateRow{"add gradient back", Does::add},
    StateRow{"add gradient to chunk", Does::add},
    StateRow{"add partly reduced gradient", Does::add},
    StateRow{"add scattered gradients", Does::add_taken},
    StateRow{"add sharded gradient", Does::add},
    StateRow{"add to gradient store", Does::add},
    StateRow{"apply update", Does::add},
    StateRow{"back up gradient", Does::copy},
    StateRow{"bucket from cast", Does::copy},
    StateRow{"cast bucket", Does::copy},
    StateRow{"cast flat gradient", Does::copy},
    StateRow{"cast gradient part", Does::copy},
    StateRow{"cast gradient", Does::copy},
    StateRow{"cast gradients", Does::copy},
    StateRow{"cast masters", Does::copy},
    StateRow{"cast own part", Does::copy},
    StateRow{"cast parameters", Does::copy},
    StateRow{"cast reduced bucket", Does::copy},
    StateRow{"cast scattered gradients", Does::copy},
    StateRow{"cast shard", Does::copy},
    StateRow{"cast sharded gradient", Does::copy},
    StateRow{"cast updated part", Does::copy},
    StateRow{"concatenate gradients", Does::copy},
    StateRow{"copy bucket", Does::copy},
    StateRow{"copy chunk", Does::copy},
    StateRow{"copy for the norm", Does::copy},
    StateRow{"copy gathered parameter", Does::copy},
    StateRow{"copy gradient chunk", Does::copy},
    StateRow{"copy gradients", Does::copy},
    StateRow{"copy parameters", Does::copy},
    StateRow{"copy shard in", Does::copy},
    StateRow{"copy updated part", Does::copy},
    StateRow{"divide by microbatches", Does::scale},
    StateRow{"divide by ranks", Does::scale},
    StateRow{"divide gradient", Does::scale},
    StateRow{"divide gradients", Does::copy},
    StateRow{"embedding.add_tied_gradient", Does::add},
    StateRow{"flat gradient from cast", Does::copy},
    StateRow{"flatten bucket", Does::copy},
    StateRow{"flatten gradients", Does::copy},
    StateRow{"flatten own part", Does::copy},
    StateRow{"flatten updated parts", Does::copy},
    StateRow{"gradient from bucket", Does::copy},
    StateRow{"gradient from contiguous buffer", Does::copy},
    StateRow{"gradient to bucket", Does::pack},
    StateRow{"gradient to chunk", Does::copy},
    StateRow{"gradient to contiguous buffer", Does::copy},
    StateRow{"gradient to rebuilt bucket", Does::copy},
    StateRow{"gradients to fp32", Does::take},
    StateRow{"interleave and divide gradients", Does::interleave},
    StateRow{"join gathered parameter", Does::copy},
    StateRow{"join gathered parts", Does::copy},
    StateRow{"join gradients", Does::copy},
    StateRow{"keep scattered gradients", Does::take},
    StateRow{"master to weight", Does::copy},
    StateRow{"masters to weights", Does::copy},
    StateRow{"narrow gradients", Does::copy},
    StateRow{"own part of bucket", Does::take},
    StateRow{"own rows of attention_mask", Does::own_rows},
    StateRow{"own slices from flattened bucket", Does::copy},
    StateRow{"pack gradients", Does::copy},
    StateRow{"pack partitions", Does::take},
    StateRow{"pad gradient", Does::copy},
    StateRow{"parameters from masters", Does::copy},
    StateRow{"shard of chunk", Does::copy},
    StateRow{"shard to device", Does::copy},
    StateRow{"sharded gradient to host", Does::copy},
    StateRow{"sum stacked gradients", Does::add},
    StateRow{"unpack parameters", Does::copy},
    StateRow{"unscale gradient part", Does::scale},
    StateRow{"zero dummy gradient", Does::zero},
    StateRow{"zero flat gradient", Does::zero},
    StateRow{"zero gradient buffer", Does::zero},
    StateRow{"zero gradient chunk", Does::zero},
    StateRow{"zero gradient", Does::zero},
    StateRow{"zero mean", Does::zero},
    StateRow{"zero moments", Does::zero},
    StateRow{"zero sum", Does::zero},
    StateRow{"zero update", Does::zero},
};

}  // namespace tidemark
