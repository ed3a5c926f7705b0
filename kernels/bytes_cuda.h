// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/quantity.h"
#include "kernels/queue.h"

namespace tidemark::kernels {

// Bytes in the order of a queue, where its operands lie.

/// Both on one device; they may overlap on the host alone.
void MoveBytes(const Queue& queue, const void* from, void* to, Bytes bytes);
void SetBytes(const Queue& queue, int byte, void* at, Bytes bytes);

}  // namespace tidemark::kernels
