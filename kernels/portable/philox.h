// Philox 4x32-10, as include/anyaccel/philox.h defines it. Include after dialect.h.
#ifndef ANYACCEL_KERNELS_PHILOX_H_
#define ANYACCEL_KERNELS_PHILOX_H_

// The four words of a counter under a seed.
AA_FN void aa_philox(aa_u64 seed, aa_u64 counter, AA_PRIVATE aa_u32* words) {
  aa_u32 c0 = (aa_u32)counter, c1 = (aa_u32)(counter >> 32), c2 = 0, c3 = 0;
  aa_u32 k0 = (aa_u32)seed, k1 = (aa_u32)(seed >> 32);
  for (aa_i32 round = 0; round < 10; ++round) {
    const aa_u32 high0 = aa_mulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const aa_u32 high1 = aa_mulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// A word as a number in [0, 1).
AA_FN float aa_unit(aa_u32 word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }

#endif  // ANYACCEL_KERNELS_PHILOX_H_
