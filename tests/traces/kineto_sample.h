// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidemark {

/// A PyTorch profile of a GPU and its host in small: not in the order of time, times as large as since 1970, one block
/// that was there before, operators and annotations within each other, backward on a thread of its own.
inline std::string KinetoSample() {
  return R"json({
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85000000000}],
  "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 90, "tid": 90,
   "ts": 1722334455000000.000, "dur": 100.000, "args": {"External id": 1, "Ev Idx": 0}},
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 90, "tid": 90,
   "ts": 1722334455000100.500, "dur": 99.500, "args": {}},
  {"ph": "X", "cat": "user_annotation", "name": "microbatch 0 forward", "pid": 90, "tid": 90,
   "ts": 1722334455000010.001, "dur": 30.000},
  {"ph": "X", "cat": "user_annotation", "name": "layer 7", "pid": 90, "tid": 90, "ts": 1722334455000011.000, "dur": 20},
  {"ph": "X", "cat": "user_annotation", "name": "microbatch 0 backward", "pid": 90, "tid": 90,
   "ts": 1722334455000050, "dur": 40},
  {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 90, "tid": 90, "ts": 1722334455000012.000, "dur": 10.000},
  {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 90, "tid": 90, "ts": 1722334455000014.000, "dur": 2.000},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 90, "tid": 91, "ts": 1722334455000060.000, "dur": 5.000},
  {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 90, "tid": 91,
   "ts": 1722334455000061.250, "args": {"Total Reserved": 20971520, "Total Allocated": 7680, "Bytes": 2048,
   "Addr": 139637976727552, "Device Id": 0, "Device Type": 1, "Ev Idx": 12}},
  {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 90, "tid": 90,
   "ts": 1722334455000015.125, "args": {"Total Reserved": 2097152, "Total Allocated": 5632, "Bytes": 512,
   "Addr": 139637976728000, "Device Id": 0, "Device Type": 1, "Ev Idx": 7}},
  {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 90, "tid": 91,
   "ts": 1722334455000064.000, "args": {"Total Reserved": 20971520, "Total Allocated": 6656, "Bytes": -1024,
   "Addr": 139637976729000, "Device Id": 0, "Device Type": 1, "Ev Idx": 13}},
  {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 90, "tid": 90,
   "ts": 1722334455000016.000, "args": {"Total Reserved": 0, "Total Allocated": 64, "Bytes": 64,
   "Addr": 5555, "Device Id": -1, "Device Type": 0, "Ev Idx": 8}},
  {"ph": "X", "cat": "kernel", "name": "ampere_sgemm", "pid": 0, "tid": 7, "ts": 1722334455000020.000, "dur": 4.096,
   "args": {"device": 0, "stream": 7, "correlation": 99, "grid": [1, 2, 3]}},
  {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 20,
   "ts": 1722334455000070.000, "dur": 9.000, "args": {"device": 0, "stream": 20}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 8,
   "ts": 1722334455000018.000, "dur": 1.000, "args": {"device": 0, "stream": 8, "bytes": 64}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 90, "tid": 90, "ts": 1722334455000013, "dur": 1,
   "args": {"correlation": 99}},
  {"ph": "i", "s": "t", "name": "[OutOfMemory]", "pid": 90, "tid": 91, "ts": 1722334455000065.000,
   "args": {"Bytes": 99999999, "Total Allocated": 6656, "Total Reserved": 20971520, "Device Id": 0, "Device Type": 1}},
  {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "stream 7 "}}
  ],
  "traceName": "sample.json"
})json";
}

}  // namespace tidemark
