/* Written by record.py. */
#define OUTPUT_SHAPE {1, 10}
#define OUTPUTS 10
#define TOLERANCE 1e-05f
static const float expected[10] = {
    -0x1.bcf4d00000000p-5f, 0x1.4d83940000000p-6f, -0x1.5b8a580000000p-3f, -0x1.a328c60000000p-3f, -0x1.2dd7a80000000p-5f, 0x1.5087480000000p-5f,
    0x1.dc3cc40000000p-3f, -0x1.4ad1020000000p-7f, -0x1.b9ff9a0000000p-5f, 0x1.0207860000000p-4f};
