// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/shared_counter.h"

#include <fmt/format.h>
#include <mpi.h>

#include <string_view>

namespace tidemark {
namespace {

Error CounterFailed(std::string_view call, int code) {
  return {ErrorCode::machine_cannot, "", fmt::format("{} failed with MPI's error {}", call, code),
          "has a rank died, or is one-sided communication switched off?"};
}

/// One number in the memory of rank 0 (MPI-3, one-sided).
class WindowCounter final : public SharedCounter {
 public:
  WindowCounter(MPI_Win window, std::int64_t* value) : window_(window) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    if (rank == 0) {
      *value = 0;
      MPI_Win_sync(window_);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~WindowCounter() override {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  WindowCounter(const WindowCounter&) = delete;
  WindowCounter& operator=(const WindowCounter&) = delete;

  Result<std::int64_t> Next() override {
    constexpr std::int64_t kOne = 1;
    std::int64_t value = 0;
    int code = MPI_Fetch_and_op(&kOne, &value, MPI_INT64_T, 0, 0, MPI_SUM, window_);
    code = code == MPI_SUCCESS ? MPI_Win_flush(0, window_) : code;
    return code == MPI_SUCCESS ? Result<std::int64_t>(value)
                               : Result<std::int64_t>(CounterFailed("MPI_Fetch_and_op", code));
  }

 private:
  MPI_Win window_;
};

}  // namespace

Result<std::unique_ptr<SharedCounter>> OpenSharedCounter() {
  std::int64_t* value = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const MPI_Aint bytes = rank == 0 ? sizeof *value : 0;
  const int code =
      MPI_Win_allocate(bytes, sizeof *value, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&value), &window);
  if (code != MPI_SUCCESS) {
    return CounterFailed("MPI_Win_allocate", code);
  }
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  return std::unique_ptr<SharedCounter>(std::make_unique<WindowCounter>(window, value));
}

}  // namespace tidemark
