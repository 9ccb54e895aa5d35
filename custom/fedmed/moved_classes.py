"""New names of classes and adaptations that studies, bundles, settings and runs of an earlier FedMed name otherwise."""

import re

# Module of today, below fedmed -> modules of FedMed 0.1 whose classes are there.
NOW_IN = {
    "aggregation.acceptance": "aggregation.clipping",
    "aggregation.sharing": "aggregation.buffers",
    "aggregation.tensor_means": "aggregation.senders",
    "aggregation.weighted_mean": "aggregation.weighting",
    "data.augment.intensities": "data.augment.references",
    "data.augment.patches": "data.augment.base data.augment.build data.augment.intensity",
    "data.augment.xray": "data.augment.clahe data.augment.rand_augment",
    "data.cache": "data.store",
    "data.cases": "data.sampling data.transforms.check data.transforms.foreground data.transforms.load "
    "data.alternating data.plain_images",
    "data.datalist": "data.entry_forms",
    "data.dicom_results": "data.dicom_find data.dicom_seg",
    "data.patients": "data.patient_ids data.trained_on",
    "data.read_limits": "data.regular_file data.memory_share",
    "data.video.clips": "data.video.clip_plan data.video.clip_loader",
    "data.video.file_source": "data.video.container data.video.movie",
    "data.video.frame_masks": "data.video.mask_rates",
    "data.video.frame_settings": "data.video.frame_grid data.video.frame_rules",
    "data.video.label_table": "data.video.table_times",
    "data.video.listed_videos": "data.video.synthetic_images data.video.unlabelled_videos data.video.labelled_videos "
    "data.video.masked_videos",
    "data.video.source": "data.video.orientation",
    "data.video.video_features": "data.video.feature_store",
    "data.video.stored_video": "data.video.extraction data.video.space_needed",
    "methods.algorithm": "methods.algorithms.algorithm",
    "methods.with_algorithm": "methods.algorithms.with_algorithm",
    "systems.adaptations.amplitude": "methods.adaptations.amplitude",
    "systems.adaptations.colour": "methods.adaptations.colour",
    "systems.adaptations.intensity": "methods.adaptations.intensity",
    "systems.adaptations.statistics": "methods.adaptations.statistics",
    "systems.agreement.engine": "engines.agreement_engine engines.share_alignment",
    "systems.agreement.labelled_sites": "engines.judged_means engines.label_confidence engines.label_shares",
    "systems.agreement.loss": "losses.agreement_loss",
    "systems.agreement.method": "methods.agreement",
    "systems.agreement.report": "reports.added_weight_section",
    "systems.agreement.server": "aggregation.labelled_mean aggregation.label_reports aggregation.do_no_harm",
    "systems.algorithms.fedbn": "methods.algorithms.fedbn",
    "systems.algorithms.feddg": "methods.algorithms.feddg engines.corrections.amplitude",
    "systems.algorithms.feddyn": "methods.algorithms.feddyn engines.corrections.dynamic aggregation.dynamic",
    "systems.algorithms.fedprox": "methods.algorithms.fedprox engines.corrections.proximal",
    "systems.algorithms.fedrep": "methods.algorithms.fedrep engines.corrections.phased",
    "systems.algorithms.scaffold": "methods.algorithms.scaffold engines.corrections.control aggregation.control",
    "systems.covid_fssl.engine": "engines.consistency_engine",
    "systems.covid_fssl.loss": "losses.consistency_loss",
    "systems.covid_fssl.method": "methods.consistency",
    "systems.fedas.engine": "engines.corrections.alignment losses.prototypes",
    "systems.fedas.method": "methods.fedas",
    "systems.fedcy.engine": "engines.cycle engines.guided",
    "systems.fedcy.loss": "losses.cycle_consistency losses.nt_xent",
    "systems.fedcy.method": "methods.fedcy methods.fedtcc methods.from_features",
    "systems.fedcy.report": "reports.sent_parts_section",
    "systems.fedcy.server": "methods.guard_features",
    "systems.fedld.loss": "losses.margin",
    "systems.fedld.method": "methods.fedld",
    "systems.fedld.server": "aggregation.directions",
    "systems.fedmoco.engine": "engines.momentum_contrast",
    "systems.fedmoco.keys": "engines.momentum_keys networks.queue networks.momentum",
    "systems.fedmoco.linear_probe": "engines.linear_probe_engine engines.linear_sgd_engine",
    "systems.fedmoco.loss": "losses.info_nce",
    "systems.fedmoco.metadata": "engines.representation engines.feature_metadata engines.synthetic_negatives",
    "systems.fedmoco.method": "methods.fedavg_moco methods.fedmoco methods.linear methods.fine_tuning",
    "systems.fedmoco.options": "engines.contrast_options",
    "systems.fedmoco.report": "reports.representation_section",
    "systems.fedmoco.server": "aggregation.self_adaptive methods.guard_contrast",
    "systems.fedst.method": "methods.feddp methods.fedst",
    "systems.fedst.report": "reports.channel_gates_section reports.server_training_section",
    "systems.fedst.separation": "engines.separation losses.representation_separation",
    "systems.fedst.server": "engines.representation_training engines.penalised",
    "systems.fixmatch.engine": "engines.pseudo_classes",
    "systems.fixmatch.fedmatch": "engines.helped losses.helper_loss networks.decomposed",
    "systems.fixmatch.loss": "losses.pseudo_label losses.annealed_loss",
    "systems.fixmatch.method": "methods.fedfixmatch methods.feduda methods.fedrgd methods.fedmatch",
    "systems.fixmatch.server": "aggregation.helpers",
    "systems.tecno.engine": "engines.temporal losses.stage_cross_entropy",
    "systems.tecno.method": "methods.tecno",
    "training.calibration": "training.collected",
    "training.case_recorder": "training.evaluation_files",
    "training.classification_recorder": "engines.heat_map",
    "training.corrections.correction": "engines.gradient_correction engines.corrections.pull",
    "training.corrections.statistics": "training.own_normalisation",
    "training.kept_features": "training.kept_gates",
    "training.label_counts": "training.confusion training.called_classes",
    "training.mask_recorder": "training.mask_scores",
    "training.metrics": "training.surface_distance",
    "training.server_engine": "engines.kept_training engines.loaded_ahead",
    "training.trainer": "engines.supervised training.handlers training.schedules",
    "training.unlabelled": "engines.unlabelled_trainer engines.pseudo_label_trainer networks.teacher training.teacher",
    "training.video_frames": "training.frame_batches",
    "training.video_recorder": "training.phase_recorder training.presence_recorder",
}
ADAPTATIONS_NOW = {  # algorithms that are adaptations now; of sites that never train, none adapted then
    "gamma_matching": ("intensity", {"scored_sites": False}),
    "amplitude_normalisation": ("amplitude", {}),
}
ROOMS = {"engines": "fedmed.training", "experiments": "research.runner"}  # rooms whose other modules moved as one
FINISH = "finish that run with the FedMed that began it, or start a new one"  # advice where a run kept the old path
_MOVED = {old: f"fedmed.{now}" for now, earlier in NOW_IN.items() for old in earlier.split()}
_NAMED = re.compile(r"\bfedmed(?:\.\w+)+")


def new_path(path: str) -> str | None:
    """Class path of today for an earlier one; None for a path that is not of an earlier FedMed."""
    module, _, name = path.removeprefix("fedmed.").rpartition(".")
    if module in _MOVED:
        return f"{_MOVED[module]}.{name}"
    room, _, rest = module.partition(".")
    return f"{ROOMS[room]}.{rest}.{name}" if path.startswith("fedmed.") and rest and room in ROOMS else None


def hint(text: str, advice: str = "write that") -> str:
    """Sentence with the new path of the first earlier class path in a text, and advice; empty where there is none."""
    moved = ((path, new_path(path)) for path in _NAMED.findall(text))
    return next((f"'{path}' of an earlier FedMed is '{now}' now; {advice}" for path, now in moved if now), "")
