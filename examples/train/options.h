// Declares the options of the program.
#pragma once

#include <cstdint>
#include <map>
#include <string>

struct Options {
  std::string out;  // the folder of the checkpoints and the curve

  std::string model = "decoder";  // or encoder
  int64_t hidden = 128, layers = 4, heads = 4, kv_heads = 2, intermediate = 352;
  bool tied = true;
  double dropout = 0.1;  // of the encoder

  int64_t steps = 300, batch = 16, length = 128;
  int64_t pieces = 1;  // number of pieces in which a rank's part of a batch is computed
  int64_t until = 0;   // stop after this step; 0: the last
  std::string schedule = "cosine";
  double rate = 2e-3, final_rate = 0.03;
  int64_t warmup = 20;
  double clip = 1;
  std::string optimizer = "adam";
  double weight_decay = 0.05;
  std::string dtype = "float32";
  std::string offload;  // empty, "host", or a folder for the states
  uint64_t seed = 1;

  std::string text;       // a file; empty: the text is generated
  std::string tokenizer;  // a model directory; empty: bytes
  std::string weights;    // a model directory to begin with

  int64_t save_every = 0;  // 0: only at the end
  bool resume = false;
  int64_t bench = 0;  // time this many steps and save nothing
  bool help = false;

  // Returns the options that a resumed run must share with the run that it continues.
  std::map<std::string, std::string> notes() const;
};

// Throws std::runtime_error with an error message for a wrong argument.
Options parse_options(int argc, char** argv);
std::string usage();

// Returns the shortest text that is read back as the same number.
std::string number_text(double number);
std::string number_text(float number);
