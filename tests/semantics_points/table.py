"""The thirty points, and the tests that cover each: ``file::function`` below ``tests``."""

from __future__ import annotations

from typing import NamedTuple


class Point(NamedTuple):
    """One sentence, and the tests that would fail if it were not so."""

    says: str
    tests: tuple[str, ...]


_NEW = "semantics_points/test"

POINTS: dict[int, Point] = {
    1: Point(
        "float32 to integers rounds to nearest even and saturates",
        ("simulator_fixes/test_fixes_0_6.py::test_casts_round_and_saturate",),
    ),
    2: Point(
        "nc_find_index8: unmatched is all ones, duplicates ascend; nc_match_replace8 walks its slots down",
        (
            "simulator_fixes/test_fixes_0_6.py::test_find_index_unmatched_and_duplicates",
            "simulator_fixes/test_fixes_0_6.py::test_match_replace_walks_backwards",
        ),
    ),
    3: Point(
        "accumulate=None counts first writes by location, not by tensor",
        (
            "simulator_fixes/test_fixes_0_6.py::test_overlapping_accumulation",
            "isa/test_matmul.py::test_overlap_of_strided_regions_is_told_apart_element_by_element",
        ),
    ),
    4: Point(
        "accumulating onto unwritten PSUM, or before trn3 onto that of another engine, is undefined: a warning",
        (
            "isa/test_matmul.py::test_accumulating_onto_unwritten_psum_warns",
            "isa/test_matmul.py::test_accumulating_onto_a_fill_warns_where_it_is_undefined",
            "isa/test_matmul.py::test_accumulating_onto_a_fill_adds_where_it_is_defined",
        ),
    ),
    5: Point(
        "PSUM accumulates in float32; a bfloat16 tensor in it rounds at every accumulation",
        ("isa/test_matmul.py::test_bfloat16_psum_is_rounded_at_every_accumulation",),
    ),
    6: Point(
        "32-bit integer tensor_tensor is exact on GpSimd, and passes float32 if an operand is in PSUM",
        (
            "isa/test_elementwise.py::test_32_bit_integers_are_exact_and_wrap",
            "isa/test_elementwise.py::test_32_bit_integers_pass_through_float32_on_vector",
            "isa/test_elementwise.py::test_the_engine_follows_from_operator_dtypes_and_buffers",
        ),
    ),
    7: Point(
        "tensor_copy moves bits if dtypes match, on Scalar from trn2 on; otherwise it passes float32",
        (f"{_NEW}_copies.py::test_tensor_copy_is_exact_between_equal_dtypes",),
    ),
    8: Point(
        "DMA casts through float32, hardware descriptors and packed dtypes never cast, skipping keeps bits",
        (
            f"{_NEW}_copies.py::test_dma_casts_through_float32_or_not_at_all",
            "simulator_fixes/test_fixes_0_4.py::test_skipped_rows_keep_integer_bits",
        ),
    ),
    9: Point(
        "dma_copy matches element counts, not shapes, and never reaches PSUM",
        (
            "isa/test_dma.py::test_elements_keep_their_order_whatever_the_shapes",
            "isa/test_dma.py::test_psum_is_out_of_reach",
        ),
    ),
    10: Point(
        ".ap() replaces shape and strides of the view; on chip its first stride is that of the storage",
        (f"{_NEW}_views.py::test_a_pattern_replaces_the_view",),
    ),
    11: Point(
        "dynamic offsets scale by the base tensor; vector_offset ignores the leading stride of the pattern",
        (
            "isa/test_dma_offsets.py::test_a_scalar_offset_steps_along_a_dimension_of_the_base",
            "isa/test_dma_rows.py::test_more_rows_than_partitions_come_from_a_table_of_three_dimensions",
        ),
    ),
    12: Point(
        "tensors on chip keep two dimensions when they are indexed, those in HBM drop them",
        (
            f"{_NEW}_views.py::test_indexing_on_chip_keeps_two_dimensions",
            "core/test_access.py::test_on_chip_selection_keeps_the_partition_and_one_free_dimension",
        ),
    ),
    13: Point(
        "more partitions may start at fewer places; the partition stride is 1",
        (f"{_NEW}_views.py::test_start_partitions", f"{_NEW}_views.py::test_partitions_are_not_skipped"),
    ),
    14: Point(
        "nc_stream_shuffle: one mask for every quadrant, 255 keeps, a part of a quadrant counts as a whole",
        (
            "isa/test_shuffle.py::test_one_mask_serves_every_quadrant",
            "isa/test_shuffle.py::test_a_short_destination_reads_only_its_own_entries_of_the_mask",
            "simulator_fixes/test_fixes_0_4.py::test_shuffle_mask_255_keeps_the_destination",
        ),
    ),
    15: Point(
        "activation(sin) does not reduce its range, nl.sin does; other functions report their domains",
        (
            f"{_NEW}_numbers.py::test_sine_of_nine",
            "isa/test_activations.py::test_values_outside_the_domain_are_reported",
        ),
    ),
    16: Point(
        "five instructions share the accumulators of Vector, which idle may spoil; Scalar has its own",
        (
            "isa/test_activations.py::test_vector_registers_are_shared",
            "isa/test_activations.py::test_undefined_vector_registers_are_reported_and_poisoned",
            "isa/test_activations.py"
            "::test_scalar_and_vector_have_registers_of_their_own_and_idle_leaves_those_of_scalar",
        ),
    ),
    17: Point(
        "range_select fills with the smallest float32, which is -inf in 16 bits; the reduction stays finite",
        (
            "isa/test_select.py::test_range_select_keeps_the_maximum_finite_where_bfloat16_is_minus_infinity",
            "simulator_fixes/test_verifier_rules.py::test_fill_value_is_honoured_or_refused",
        ),
    ),
    18: Point(
        "the scale of quantize_mx is twice that of the OCP sample; groups of zeros have scale byte 0",
        (
            "isa/test_quantize.py::test_the_scale_is_twice_that_of_the_sample_algorithm",
            "isa/test_quantize.py::test_a_group_of_zeros_has_scale_byte_zero_and_keeps_its_signs",
        ),
    ),
    19: Point(
        "MX scales lie in the quadrant of their data; packed fp4 has 16 bits, packed fp8 has 32",
        (
            "simulator_fixes/test_fixes_0_6.py::test_sliced_scales",
            "isa/test_matmul.py::test_scales_that_no_quadrant_needs_may_be_unwritten",
            f"{_NEW}_numbers.py::test_sizes_of_packed_dtypes",
        ),
    ),
    20: Point(
        "double_row has a first free dimension of 2 in halves; MX packs four neighbours of the last one",
        (
            f"{_NEW}_numbers.py::test_double_row_takes_two_rows_exactly",
            "isa/test_matmul.py::test_double_row_takes_halves_that_lie_apart",
            "simulator_fixes/test_fixes_0_4.py::test_packed_dtypes_on_trn3",
        ),
    ),
    21: Point(
        "float8_e4m3 reaches 240, float8_e4m3fn 448, and one matmul does not mix them",
        (f"{_NEW}_numbers.py::test_the_two_e4m3_do_not_mix",),
    ),
    22: Point(
        "the value of memset has the kind of the dtype; packed dtypes take 0 alone",
        (
            f"{_NEW}_copies.py::test_fill_values_have_the_kind_of_the_dtype",
            "surface/test_versions.py::test_memset_of_integers_takes_ints_in_every_version",
        ),
    ),
    23: Point(
        "tensor_reduce takes trailing axes of the real dimensions; nl.var keeps dimensions",
        (
            "isa/test_reduce.py::test_trailing_axes_of_any_shape",
            "isa/test_reduce.py::test_axes_count_the_dimensions_that_the_operand_has",
            "language/test_reductions.py::test_variance_always_keeps_dimensions",
        ),
    ),
    24: Point(
        "indirect offsets snake over 16 rows, 32 for Tensor; local_gather and topk over 16 partitions",
        (
            f"{_NEW}_gathers.py::test_offsets_snake_over_rows",
            "isa/test_matmul.py::test_a_scattered_destination_is_added_to_where_it_was_written",
            "isa/test_gather.py::test_every_group_gathers_its_own_list",
            "isa/test_search.py::test_topk_agrees_with_torch_for_every_group",
        ),
    ),
    25: Point(
        "nonzero_with_count touches partitions 0, 16, ..., 112 alone",
        ("isa/test_search.py::test_only_every_16th_partition_is_read_and_written",),
    ),
    26: Point(
        "the rows of an indirect dma_transpose are in column-major order, and dst has the rank of src",
        (
            f"{_NEW}_gathers.py::test_rows_of_an_indirect_transpose_are_column_major",
            "surface/test_versions.py::test_dma_transpose_needs_the_rank_in_every_version",
        ),
    ),
    27: Point(
        "static, affine and sequential ranges are ranges; the index of a device loop is not written",
        (
            "language/test_loops.py::test_old_ranges_are_ranges",
            "language/test_loops.py::test_no_reorder_refuses_device_loops",
            f"{_NEW}_kernels.py::test_the_index_of_a_loop_is_not_written",
        ),
    ),
    28: Point(
        "outputs are in shared_hbm, arguments are no lists, kernels are pure; is and * are no NKI",
        (
            f"{_NEW}_kernels.py::test_what_a_kernel_returns_and_takes",
            "frontend/check/test_language_check.py::test_globals_that_functions_change",
            "frontend/check/test_parser_limits.py::test_identity",
            "frontend/check/test_parser_limits.py::test_signatures",
        ),
    ),
    29: Point(
        "unwritten memory is NaN or 4, the target is trn3, low precision is precise by default",
        (f"{_NEW}_kernels.py::test_defaults_of_the_simulator",),
    ),
    30: Point(
        "64 cycles at least, float32 products four times, a ramp of 3 us: the figures of the timing model",
        (
            "target/test_target_values.py::test_figures_of_all_generations",
            "target/test_target_values.py::test_timing_reproduces_the_points_it_was_read_from",
            f"{_NEW}_numbers.py::test_figures_of_the_timing_model",
        ),
    ),
}
