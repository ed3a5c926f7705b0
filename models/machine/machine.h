// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/quantity.h"

namespace tidemark {

/// A class of links. `latency` is one way, per message or per ring step; `bandwidth` is per rank and direction.
struct Link {
  Nanos latency;
  BytesPerSec bandwidth;
  friend bool operator==(const Link&, const Link&) = default;
};

struct Band {
  Bytes low, expected, high;
  friend bool operator==(const Band&, const Band&) = default;
};

/// How fast kernels of one kind were measured to be at a size: operations or bytes a second (models/machine/rates.h).
struct RatePoint {
  std::int64_t size = 0;
  double per_second = 0;
  friend bool operator==(const RatePoint&, const RatePoint&) = default;
};
using RateCurve = std::vector<RatePoint>;  ///< by rising size

/// Of a GPU; 0: not known. Those of its processors and of its memory, when it was measured and the highest.
struct Clocks {
  std::int64_t sm_mhz = 0, sm_max_mhz = 0;
  std::int64_t memory_mhz = 0, memory_max_mhz = 0;
  friend bool operator==(const Clocks&, const Clocks&) = default;
};

/// One kind of node and the network between such nodes. Every number of a preset file stands beside its source.
struct Machine {
  std::string name;
  std::string device;        ///< as its driver calls it ("NVIDIA H100 80GB HBM3"), a processor as its system does
  std::string driver, cuda;  ///< versions with which it was measured; empty: not known
  std::string measured_on;   ///< "2026-01-31"; empty: nothing was
  Clocks clocks;
  bool accelerator = true;  ///< false: a plain CPU node
  std::int64_t devices_per_node = 8;
  Bytes device_memory;
  std::map<DType, FlopsPerSec> peak;  ///< dense
  BytesPerSec memory_bandwidth;
  double achievable_flops = 1, achievable_bandwidth = 1;  ///< fractions reached by large well-shaped kernels
  std::int64_t processors = 1;                            ///< SMs (or cores): how many tiles run at once
  std::int64_t tile_m = 128, tile_n = 128;                ///< output tile of one processor's matrix kernel
  Nanos kernel_launch;                                    ///< device-side cost of starting a kernel
  Nanos host_issue;                                       ///< host time to issue one device operation
  Link intra_node, inter_node;
  Link host_link;                          ///< between a device and its host's memory
  BytesPerSec host_memory_bandwidth;       ///< of a whole node, as its processors reach it; 0: not known
  FlopsPerSec host_flops;                  ///< fp32 arithmetic of a whole node's processors; 0: not known
  std::map<std::string, RateCurve> rates;  ///< by kind of kernel, "gemm.fp32"; kinds without one: the roofline
  /// Whether other streams (collectives, copies, casts beside the compute stream) get on while its kernels run. false:
  /// a rank has one thread, and all take turns (MPI without a progress thread). Messages between pipeline stages travel
  /// by themselves either way.
  bool overlap = true;
  double overlap_slowdown = 1;                 ///< a kernel takes this many times as long while a collective runs
  Band context;                                ///< driver context and loaded modules
  Bytes communicator;                          ///< device memory of one communicator
  Bytes workspace;                             ///< math-library workspace outside the tensor allocator
  std::map<std::string, std::string> sources;  ///< key of the file -> where its number comes from
  friend bool operator==(const Machine&, const Machine&) = default;
};

}  // namespace tidemark
