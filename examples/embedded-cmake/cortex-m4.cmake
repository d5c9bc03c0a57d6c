# Toolchain: GCC for Arm, Cortex-M4 with a floating point unit, no C library.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_C_FLAGS_INIT "-mthumb -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16 -ffreestanding")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-nostdlib -static")
# CMake's trial programs cannot be linked without a board.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
