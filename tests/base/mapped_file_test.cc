// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace tidemark::mapped_file_test {
namespace {

class MappedFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const char* name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(MappedFiles, giveTheBytesOfAFile) {
  std::ofstream(Path("file"), std::ios::binary) << std::string("a\0b", 3);
  Result<MappedFile> file = MappedFile::Open(Path("file"));
  ASSERT_TRUE(file);
  const MappedFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes(), std::string("a\0b", 3));
}

TEST_F(MappedFiles, giveAnEmptyFileAsNoBytes) {
  std::ofstream(Path("file")).flush();
  const Result<MappedFile> file = MappedFile::Open(Path("file"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->bytes(), "");
}

TEST_F(MappedFiles, readAPipeToItsEnd) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  std::thread writer([path = Path("pipe")] { std::ofstream(path) << std::string(200000, 'x'); });
  const Result<MappedFile> file = MappedFile::Open(Path("pipe"));
  writer.join();
  ASSERT_TRUE(file);
  EXPECT_EQ(file->bytes(), std::string(200000, 'x'));
}

TEST_F(MappedFiles, endTheProcessWithASentenceWhereTheFileIsCutOff) {
  constexpr std::size_t kPages = 100 * 4096;
  std::ofstream(Path("file"), std::ios::binary) << std::string(kPages, 'x');
  const auto read_what_is_gone = [&] {
    TellOfLostPages();
    const Result<MappedFile> file = MappedFile::Open(Path("file"));
    std::filesystem::resize_file(Path("file"), 1);
    std::fputc(file->bytes().back(), stderr);
  };
  EXPECT_EXIT(read_what_is_gone(), testing::ExitedWithCode(3), "cut off while it was read");
}

TEST_F(MappedFiles, refuseWhatIsNoFileAndSayWhich) {
  const Result<MappedFile> none = MappedFile::Open(Path("none"));
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().Text(), testing::HasSubstr("none: there is no such file"));
  const Result<MappedFile> directory = MappedFile::Open(folder_.string());
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, ErrorCode::bad_input);
  EXPECT_THAT(directory.error().message, testing::HasSubstr("is a directory"));
}

}  // namespace
}  // namespace tidemark::mapped_file_test
