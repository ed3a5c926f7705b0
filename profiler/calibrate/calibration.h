// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/quantity.h"
#include "models/machine/machine.h"
#include "profiler/calibrate/sizes.h"
#include "profiler/device/device.h"
#include "profiler/device/gpu_description.h"

namespace tidemark {

/// A machine that is becoming one that was measured. Whatever nobody measures stays as in `base`, and says so.
class Calibration {
 public:
  /// `how`: by what and when, behind every source. `day` is Machine::measured_on.
  Calibration(Machine base, std::string how, const std::string& day);

  /// `member` of the machine is now `value`, by measurement.
  template <class T>
  void Measured(const std::string& key, T& member, T value, std::string_view what) {
    member = value;
    machine_.sources[key] = fmt::format("measured: {}; {}", what, how_);
  }
  /// Not measured, but so by what the executor or the device is.
  template <class T>
  void Known(const std::string& key, T& member, T value, std::string_view why) {
    member = value;
    machine_.sources[key] = why;
  }

  Machine& machine() { return machine_; }
  const std::string& how() const { return how_; }

 private:
  Machine machine_;
  std::string how_;
};

/// Measures this machine's processor as a device of ranks that have a thread each, `device` being such a rank's.
/// `cores` of them share `memory`.
void CalibrateProcessor(Calibration& to, Device& device, const CalibrationSizes& sizes, std::int64_t cores,
                        Bytes memory);

/// What is known of a GPU before its kernels are measured.
struct GpuUnderCalibration {
  std::int64_t gpus = 1;                     ///< of this machine
  GpuDescription before;                     ///< as it was when this process had no context on it
  GpuDescription opened;                     ///< with the context, when nothing had run in it
  bool has_sheet = false;                    ///< the base is a preset of this very GPU: its peaks are NVIDIA's
  std::optional<Link> link;                  ///< between GPUs; nothing: there is one
  std::optional<Bytes> communicator;         ///< that a communicator took, where the driver tells
  std::function<GpuDescription()> describe;  ///< as it is now
};

/// Measures a GPU. What is left to the base: where there is one GPU, how many a node has and the link between them;
/// those between nodes, the host, tiles, and how much collectives slow kernels down; the context where the driver does
/// not tell what processes use.
void CalibrateGpu(Calibration& to, Device& device, const CalibrationSizes& sizes, const GpuUnderCalibration& gpu);

}  // namespace tidemark
