// SPDX-License-Identifier: Apache-2.0
#include "base/shared_library.h"

#include <gtest/gtest.h>

namespace tidemark::shared_library_test {
namespace {

TEST(SharedLibrary, FindsFunctionsByName) {
  const SharedLibrary library = SharedLibrary::OfCuda("libm.so.6", 13);
  ASSERT_TRUE(library.is_there());
  double (*root)(double) = nullptr;
  ASSERT_TRUE(library.Find("sqrt", root));
  EXPECT_EQ(root(9), 3);
  EXPECT_FALSE(library.Find("no such function", root));
  EXPECT_NE(SharedLibrary::LoadersWords().find("no such function"), std::string::npos);
}

TEST(SharedLibrary, IsNotThereWhereThereIsNone) {
  EXPECT_FALSE(SharedLibrary::OfCuda("libno-such-library.so.1", 13).is_there());
}

}  // namespace
}  // namespace tidemark::shared_library_test
