// Simulates the operators of libopapi.so for weights in blocks (FRACTAL_NZ): the conversion from and to rows, and the product. What they
// check is what the source of ops-math (conversion/npu_format_cast) and of ops-nn (aclnn_matmul.cpp), and the document of
// aclnnMatmulWeightNz, say.
#include <cstring>

#include "simulators/ascend/operator.h"

namespace sim_library {

namespace {

bool dense(const NnTensor& matrix) {
  return matrix.dims.size() == 2 && matrix.strides[0] == matrix.dims[1] && matrix.strides[1] == 1;
}

// Copies each element of a matrix from or to its place in the blocks. `rows` has gaps between its rows of `row_bytes`.
template <typename Copy>
void for_each_element(const NnTensor& blocks, std::int64_t rows, std::int64_t columns, const Copy& copy) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) copy(r * columns + c, blocks.place(r, c));
  }
}

}  // namespace

// From rows to blocks, which are filled up with zeros, or back.
int aclnnNpuFormatCastGetWorkspaceSize(ConstHandle source, ConstHandle destination, std::uint64_t* workspace,
                                       Handle* executor) {
  return plan("aclnnNpuFormatCast", workspace, executor, [&](Plan& p) {
    const Tensor from = p.input_of_any_format(source, "srcTensor");
    const Tensor to = p.output_of_any_format(destination, "dstTensor");
    p.require(from->format != to->format, "the simulator converts from ND to FRACTAL_NZ, and back");
    p.require(from->type == to->type && floating(from->type), "types differ, or are not floating point");
    p.require(dense(*from) && dense(*to), "a matrix has gaps or is transposed");
    p.require(from->dims == to->dims, "the shapes differ");
    p.require(from->dims[0] != 1, "the simulator converts no matrix of one row (ValidateNonQuantMatmulParams)");
    const bool packs = to->format == kNnFractalNz;
    const auto bytes = static_cast<std::int64_t>(nn_type_bytes(from->type));
    return p.finish(kSomeWorkspace, [=](const Views& v) {
      char *rows = v[packs ? 0 : 1].at(0), *blocks = v[packs ? 1 : 0].at(0);
      const NnTensor& matrix = packs ? *to : *from;
      if (packs) std::memset(blocks, 0, matrix.bytes());
      for_each_element(matrix, from->dims[0], from->dims[1], [&](std::int64_t in_rows, std::int64_t in_blocks) {
        char *row = rows + in_rows * bytes, *block = blocks + in_blocks * bytes;
        packs ? std::memcpy(block, row, bytes) : std::memcpy(row, block, bytes);
      });
    });
  });
}

// mat2 is [k, n] in blocks, or the transpose of an [n, k] in blocks.
int aclnnMatmulWeightNzGetWorkspaceSize(ConstHandle self, ConstHandle weight, ConstHandle out, std::int8_t math,
                                        std::uint64_t* workspace, Handle* executor) {
  return plan("aclnnMatmulWeightNz", workspace, executor, [&](Plan& p) {
    const Tensor a = p.input(self, "self"), b = p.input_of_any_format(weight, "mat2"), d = p.output(out, "out");
    p.require(b->format == kNnFractalNz, "mat2 is not in FRACTAL_NZ");
    p.require(a->type == b->type && (a->type == kNnHalf || a->type == kNnBfloat16),
              "self and mat2 are not both of fp16 or both of bf16");
    p.require(d->type == a->type || d->type == kNnFloat, "the type of out is neither that of the matrices nor fp32");
    p.require(math >= 0 && math <= 4, "the type of calculation must be 0 to 4");
    p.require(a->dims.size() == 2 && dense(*d), "self is no matrix, or out has gaps");
    p.require(b->dims[0] > 1 && b->dims[1] > 1, "a size of mat2 is 1");
    p.require(a->dims[1] == b->dims[0] && d->dims[0] == a->dims[0] && d->dims[1] == b->dims[1],
              "the shapes do not fit");
    Product made;
    made.m = d->dims[0];
    made.n = d->dims[1];
    made.k = a->dims[1];
    made.a = Strided{data_type(a->type), a->strides[0], a->strides[1], 0};
    made.c = made.d = Strided{data_type(d->type), d->strides[0], d->strides[1], 0};
    // The matrix that is stored is put into rows for the loops.
    const bool turned = b->transposed();
    const std::int64_t rows = turned ? made.n : made.k, columns = turned ? made.k : made.n;
    made.b = Strided{data_type(b->type), turned ? 1 : columns, turned ? columns : 1, 0};
    const auto bytes = static_cast<std::int64_t>(nn_type_bytes(b->type));
    return p.finish(kSomeWorkspace, [=](const Views& v) {
      std::vector<char> stored(static_cast<std::size_t>(rows * columns * bytes));
      for_each_element(*b, rows, columns, [&](std::int64_t in_rows, std::int64_t in_blocks) {
        std::memcpy(stored.data() + in_rows * bytes, v[1].at(0) + in_blocks * bytes, bytes);
      });
      compute(made, v[0].at(0), stored.data(), nullptr, nullptr, v[2].at(0));
    });
  });
}

SIM_OPERATOR(aclnnNpuFormatCast)
SIM_OPERATOR(aclnnMatmulWeightNz)

}  // namespace sim_library

SIM_EXPORT_OPERATOR(aclnnNpuFormatCast)
SIM_EXPORT_OPERATOR(aclnnMatmulWeightNz)
