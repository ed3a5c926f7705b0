// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "kernels/queue.h"
#include "kernels/tensor.h"
#include "models/job/allocator_options.h"
#include "sim/memory/allocator.h"
#include "sim/memory/device_memory.h"

namespace tidemark {

/// Memory of a device that no allocator knows, for what stands in for a library's or the executor's own. Gives it back
/// when it goes, after all work that uses it.
class DeviceRoom {
 public:
  virtual ~DeviceRoom() = default;
  void* data() const { return data_; }

 protected:
  explicit DeviceRoom(void* data) : data_(data) {}

 private:
  void* data_;
};

/// Where a rank's tensors lie and its kernels run. A program's streams are queues here: what one of them is given is
/// done in order, and after what others were given before a mark that it waits for.
class Device {
 public:
  /// A point in a stream's work, until the marks are dropped.
  using Mark = std::size_t;

  virtual ~Device() = default;

  /// Its memory, or `capacity` of it, below an allocator.
  virtual std::unique_ptr<DeviceMemory> MemoryOf(Bytes capacity) = 0;
  /// What hands out memory as the options say, where the device does that itself; nothing: an allocator over MemoryOf.
  virtual Result<std::unique_ptr<Allocator>> OwnAllocator(const AllocatorOptions& options, Bytes capacity);
  /// Throws std::bad_alloc where there is no more, as an allocation of the host does.
  virtual std::unique_ptr<DeviceRoom> RoomFor(Bytes bytes) = 0;

  /// Memory of the host that copies need not stage on their way to the device and back; throws as well. What Put takes
  /// from there is the caller's again only when the stream has come to it.
  virtual std::unique_ptr<DeviceRoom> HostRoomFor(Bytes bytes) = 0;

  /// Work for a stream: something that puts kernels into the queue that it is given. What it refers to on the host must
  /// outlive Synchronize.
  using Work = std::function<void(const kernels::Queue& queue)>;
  virtual void Give(std::uint32_t stream, Work work) = 0;
  /// What a communicator knows the stream by (Exchange::stream).
  virtual void* StreamOf(std::uint32_t stream) = 0;
  /// Makes every byte of a stretch the same, in the order of a stream.
  virtual void Set(std::uint32_t stream, int byte, void* at, Bytes bytes);
  /// Bytes from the host and back, in the order of a stream. Behind each the host's memory is the caller's again.
  virtual void Put(std::uint32_t stream, const void* host, void* to, Bytes bytes) = 0;
  virtual void Fetch(std::uint32_t stream, const void* from, void* host, Bytes bytes) = 0;

  /// Whether work is done when it has been given: then nobody need ask for marks.
  virtual bool is_synchronous() const = 0;
  virtual Mark MarkIn(std::uint32_t stream) = 0;
  virtual void WaitFor(std::uint32_t stream, Mark mark) = 0;
  /// The host waits for a stream, for everything.
  virtual void Finish(std::uint32_t stream) = 0;
  virtual void Synchronize() = 0;
  /// From one mark to a later one, of any stream; both have been reached.
  virtual Nanos Between(Mark from, Mark to) = 0;
  virtual void DropMarks() = 0;

  /// What whoever reads its times should know, in sentences.
  virtual std::vector<std::string> notes() const { return {}; }

  /// From now on, or no longer: what the device takes for the code of kernels while work is given to it is counted,
  /// where a device does that. It has that code when the same work comes again.
  virtual void CountCode(bool) {}
  /// A call of a library that gives work to the device by itself.
  virtual void Call(const std::function<void()>& call) { call(); }

  /// A tensor's numbers widened to fp64, on the host.
  void Read(std::uint32_t stream, const kernels::ConstTensor& from, double* to);
};

}  // namespace tidemark
