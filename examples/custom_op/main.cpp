// Shows how a program uses a custom op: it names the op's source, loads the op by its builder's name, and calls it.
#include <anyaccel/accelerator.h>
#include <anyaccel/error.h>
#include <anyaccel/op_builder.h>

#include <cstdio>

struct RmsRowsBuilder : anyaccel::HostOpBuilder {
  RmsRowsBuilder() : HostOpBuilder("RmsRowsBuilder") {}
  std::vector<std::string> sources() const override { return {"rms.cpp"}; }  // beside the program
};
AA_REGISTER_OP_BUILDER(RmsRowsBuilder)

int main() {
  try {
    auto library = anyaccel::get_accelerator()->create_op_builder("RmsRowsBuilder")->load_as<anyaccel::HostOpLibrary>();
    auto* rms_rows = library->function<void(float*, const float*, int64_t, int64_t)>("rms_rows");
    const float x[2][4] = {{1, 1, 1, 1}, {3, 4, 3, 4}};
    float out[2];
    rms_rows(out, x[0], 2, 4);
    std::printf("%.4f %.4f\n", static_cast<double>(out[0]), static_cast<double>(out[1]));
  } catch (const anyaccel::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
