// Made by tools/make_optimizer_values.py with PyTorch 2.15.0; do not edit.
//
// Three steps on eight parameters; the gradient of parameter i in step s (from 1) is ((7 i + 3 s) mod 11 - 5) / 16.
#pragma once

namespace anyaccel::ops::torch_values {

inline constexpr float params[] = {0.5f, -1.25f, 2.0f, -0.03125f, 0.75f, -3.5f, 0.00100000005f, 1.0f};
inline constexpr float adam_params[] = {0.5008865f,   -1.25281632f, 1.9732914f,    -0.0151650831f,
                                        0.735635817f, -3.47170448f, 0.0222204197f, 0.988797545f};
inline constexpr float adam_state0[] = {0.034214858f,  -0.0255980399f, 0.0564745553f, 0.00297360867f,
                                        0.0116115054f, -0.108942844f,  -0.013074901f, 0.00146308867f};
inline constexpr float adam_state1[] = {0.00108716183f, 0.00147557899f, 0.00269821845f,  0.000702356396f,
                                        0.00134316203f, 0.00582247414f, 0.000810507336f, 0.00126818707f};
inline constexpr float adamw_params[] = {0.506584227f, -1.25963402f, 1.97475374f, -0.0153260157f,
                                         0.739814699f, -3.494416f,   0.02228445f, 0.994175315f};
inline constexpr float adamw_state0[] = {0.0205000006f,   0.0084374994f,  0.0025625017f,  0.00356249954f,
                                         -0.00850000046f, -0.0143750012f, -0.0133750001f, -0.0254375003f};
inline constexpr float adamw_state1[] = {0.000816812506f, 0.00130517571f, 0.00128203514f,  0.000696128875f,
                                         0.00127037498f,  0.00132460927f, 0.000807484379f, 0.00146761315f};
inline constexpr float adagrad_params[] = {0.46248883f,  -1.24081421f, 1.91263652f,   -0.0169751644f,
                                           0.722890079f, -3.38633466f, 0.0394146368f, 0.983898163f};
inline constexpr float adagrad_state0[] = {0.109903105f, 0.151761651f, 0.270448506f,  0.0721856728f,
                                           0.138123438f, 0.576918602f, 0.0829632804f, 0.130690604f};

}  // namespace anyaccel::ops::torch_values
