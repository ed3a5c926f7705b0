// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>

namespace tidemark {

/// The bytes of a database that these statements make. Small pages, so that a file of few tables is small.
inline std::string Database(const std::string& sql) {
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open(":memory:", &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, ("PRAGMA page_size=512; VACUUM; BEGIN;" + sql + "COMMIT;").c_str(), nullptr, nullptr,
                         nullptr),
            SQLITE_OK)
      << sqlite3_errmsg(database);
  sqlite3_int64 size = 0;
  unsigned char* data = sqlite3_serialize(database, "main", &size, 0);
  std::string bytes(reinterpret_cast<const char*>(data), static_cast<std::size_t>(size));
  sqlite3_free(data);
  sqlite3_close(database);
  return bytes;
}

/// Tables as Nsight Systems makes them, less the columns that nobody here reads.
inline const char* const kNsysTables = R"(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_DEV_MEM_EVENT_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_DIAGNOSTIC_SEVERITY_LEVEL (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes INTEGER NOT NULL,
  memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT, correlationId INTEGER, streamId INTEGER,
  localMemoryPoolAddress INTEGER, localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER,
  localMemoryPoolUtilizedSize INTEGER, importedMemoryPoolAddress INTEGER, importedMemoryPoolProcessId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL, source INTEGER NOT NULL,
  severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER);
)";

inline const char* const kNsysEnums = R"(
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'),
  (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device'),
  (3, 'CUDA_MEMOPR_MEMORY_KIND_ARRAY', 'Array'), (4, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED', 'Managed'),
  (5, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC', 'Device Static'),
  (6, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC', 'Managed Static');
INSERT INTO ENUM_CUDA_DEV_MEM_EVENT_OPER VALUES (0, 'CUDA_DEV_MEM_EVENT_OPR_ALLOCATION', 'Allocation'),
  (1, 'CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION', 'Deallocation');
INSERT INTO ENUM_DIAGNOSTIC_SEVERITY_LEVEL VALUES (1, 'Info', 'Information'), (2, 'Warning', 'Warning');
)";

/// Two processes on one GPU: 77 (its identifiers are 77 << 24) and 78 (78 << 24), which has an address of 77's.
inline const char* const kNsysRows = R"(
INSERT INTO StringIds VALUES (1, 'sgemm_128x64'), (2, 'void sgemm_128x64<float>()'), (3, 'cudaMalloc_v3020'),
  (4, 'microbatch 0 forward'), (5, 'ncclDevKernel_AllReduce_Sum_f32'), (6, 'cudaMallocAsync_v11020');
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES
  (3000, 1291845632, 0, 1, 4096, 0, 4096, 2, 1, NULL, 13, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (1000, 1291845632, 0, 1, 4096, 0, 4096, 2, 0, NULL, 11, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (1100, 1291845632, 0, 1, 5555, 0, 1048576, 1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (2000, 1291845632, 0, 1, 8192, 0, 2048, 2, 0, NULL, 12, 7, 36864, 0, 33554432, 2048, NULL, NULL),
  (2500, 1291845632, 0, 1, 12288, 0, 64, 5, 0, 'table', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (2600, 1291845632, 0, 1, 7777, 0, 1048576, 4, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (4000, 1291845632, 0, 1, 28672, 0, 512, 2, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (1200, 1308622848, 0, 2, 4096, 0, 100, 2, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (990, 1010, 0, 1291845633, 11, 3, 0), (1990, 2001, 0, 1291845633, 12, 6, 0),
  (1190, 1201, 0, 1308622849, 11, 6, 0), (1600, 1610, 0, 1291845633, 20, 3, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2100, 2200, 0, 1, 7, 20, 1291845632, 2, 1),
  (2150, 2300, 0, 1, 20, 21, 1291845632, 5, 5);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1800, 1850, 0, 1, 13, 22, 1291845632, 64, 1);
INSERT INTO NVTX_EVENTS VALUES (1500, 2800, 59, NULL, NULL, 1291845633, 4, 0),
  (1900, 2200, 59, NULL, 'layer 2', 1291845633, NULL, 0), (1950, NULL, 34, NULL, 'a mark', 1291845633, NULL, 0),
  (900, 2900, 60, 1, 'step 0', 1291845633, NULL, 0), (1150, 1250, 59, NULL, 'other', 1308622849, NULL, 0);
INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 1, 1, 'Number of CUDA events collected: 7. Nothing was dropped.', NULL);
)";

inline std::string NsysSample() { return Database(std::string(kNsysTables) + kNsysEnums + kNsysRows); }

}  // namespace tidemark
