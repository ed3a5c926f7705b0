// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "base/quantity.h"
#include "profiler/comm/communicator.h"

namespace tidemark {

/// Copies between memory of a device and of the host, on a stream of the device (Exchange::stream). Each begins when
/// what was put on the stream before it is done, and returns when it is done itself.
struct DeviceCopies {
  std::function<Status(const void* device, void* host, Bytes bytes, void* stream)> fetch;
  std::function<Status(const void* host, void* device, Bytes bytes, void* stream)> put;
};

/// Exchanges device memory by way of the host: what a rank gives is fetched when it begins, `host` exchanges it, and
/// what it gets is put back when it finishes; nothing else is written. Slow, and the host waits for the stream (not
/// on_stream()): for several ranks on one GPU where NCCL does not take that.
std::unique_ptr<Communicator> MakeStagedCommunicator(std::unique_ptr<Communicator> host, DeviceCopies copies);

}  // namespace tidemark
