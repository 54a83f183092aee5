"""What names stand for: the communication of every library, and work that only looks like it."""

import pytest

from simcore.replay.kinds import categories, kind_of_name, plain
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.report import to_dict
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import recorded

# Names as the libraries' sources and public traces have them.
COMMUNICATION = {
    "NCCL, RCCL": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs)",
    ],
    "DeepEP": [
        "void deep_ep::internode::dispatch<false, 4, false, 16384, 8, 28>(int4*, float*)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*, float*)",
        "void deep_ep::internode_ll::combine<7, 7168, 9>(void*, void*)",
        "void dpsk::ep::internode::notify_dispatch<4>(int const*, int*)",
    ],
    "NVSHMEM": ["nvshmemi_barrier_on_stream_kernel", "void nvshmemi_transfer_rma<1>(void*)"],
    "userbuffers": ["void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)", "kuserbuffers_pushrecv(int, int)"],
    "TensorRT-LLM": [
        "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<5, 8>(Params)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<0>(Params)",
    ],
    "symmetric memory": [
        "void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
        "void one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)",
        "void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(c10::BFloat16**)",
    ],
    "custom all-reduce": [
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::CodecFP>(void*)",
    ],
    "pplx": ["void pplx::combineKernel<float, true>(float*)", "a2a_dispatch_send_kernel"],
    "HCCL": ["hcom_allReduce__123_0_1", "hcclAicpuKernel"],
    "oneCCL": ["void oneccl::allreduce_small<sycl::half>(int)", "ccl::v1::reduce_scatter_kernel(int)"],
    "MSCCL++": ["void mscclpp::allreduce7<__half>(void*)"],
    "peer copies": ["Memcpy PtoP (Device -> Device)"],
}


@pytest.mark.parametrize("library", COMMUNICATION)
def test_communication_is_told_by_name_in_every_library(library):
    assert {(kind_of_name(name).category, kind_of_name(name).library) for name in COMMUNICATION[library]} == {
        ("communication", library)
    }


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", "elementwise"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)", "reductions"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::Mainloop>>(Params)", "attention"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(Params)", "products"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "convolution"),
        ("void deep_gemm::fp8_gemm_kernel<128u>(__nv_bfloat16*)", "products"),
        ("void fbgemm_gpu::permute_2D_data_kernel<true>(int)", "indexing"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("spin_kernel", "other"),
    ],
)
def test_work_is_told_by_what_a_function_is_called(name, category):
    assert kind_of_name(name).category == category
    assert category in categories()


def test_mangled_names_are_read():
    assert plain("_ZN7deep_ep9internode8dispatchILb0ELi4EEEvP4int4") == "deep_ep::internode::dispatch"
    assert kind_of_name("_ZN7deep_ep9internode8dispatchILb0ELi4EEEvP4int4").library == "DeepEP"


def test_what_looks_like_communication_of_no_known_library_is_a_warning():
    trace = read_kineto(
        recorded([("launch", "my_ring_all_gather_v2", 9), ("launch", "gemm", 9)]).content(), "made.json"
    )
    (rank,) = to_dict(replay_traces([trace], Changes()))["ranks"]
    assert [text for text in rank["warnings"] if "my_ring_all_gather_v2" in text]
    assert rank["breakdown"]["measured"]["exposed_comm_ns"] == 0
