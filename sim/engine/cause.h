// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sim/program/program.h"

namespace tidemark {

/// What the compute stream can be idle for, in the order that breaks ties.
enum Cause : std::uint8_t { kCollective, kPeer, kHost };

/// What a wait for a stream of this kind is a wait for.
constexpr Cause CauseOf(StreamKind kind) {
  return kind == StreamKind::collective ? kCollective : kind == StreamKind::peer ? kPeer : kHost;
}

}  // namespace tidemark
