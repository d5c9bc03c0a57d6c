# relax_model(NAME FILE [OPTIONS..]): a static library NAME of the model FILE, compiled to C by relax-aot for the C
# compiler of this project, with its header NAME.h. OPTIONS go to relax-aot. In a Zephyr module, zephyr_library() and
# zephyr_library_sources() take the place of add_library().
find_program(RELAX_AOT relax-aot REQUIRED)

function(relax_model name file)
  get_filename_component(file ${file} ABSOLUTE)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${name})
  file(MAKE_DIRECTORY ${out})
  # Of the target only the size of a pointer matters: the C compiler's flags say the rest.
  if(CMAKE_SIZEOF_VOID_P EQUAL 8)
    set(target aarch64-unknown-none)
  else()
    set(target thumbv7em-none-eabi)
  endif()
  add_custom_command(
    OUTPUT ${out}/${name}.c ${out}/${name}.h
    COMMAND ${RELAX_AOT} ${file} --prefix ${name} --emit c --target ${target} ${ARGN} -o ${out}/${name}.c
    DEPENDS ${file} ${RELAX_AOT}
    COMMENT "Compiling ${file}"
    VERBATIM)
  add_library(${name} STATIC ${out}/${name}.c ${out}/${name}.h)
  target_include_directories(${name} PUBLIC ${out})
  set_target_properties(${name} PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
  target_compile_options(${name} PRIVATE -ffp-contract=off)
  if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    # Without a C library there is no memset to call.
    target_compile_options(${name} PRIVATE -fno-tree-loop-distribute-patterns)
  endif()
endfunction()
