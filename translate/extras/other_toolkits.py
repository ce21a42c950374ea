"""Names that other toolkits give to what has another name here.

They are those of JoeyNMT, OpenNMT-py, fairseq, Sockeye, Marian and Hugging Face's Trainer, in
small letters and with _ for -; what stands before a dot or dashes does not count.
"""

from __future__ import annotations

from collections.abc import Collection

# the setting to type → other names of it
NAMES = {
    "data.tokens_per_batch=TOKENS": "batch_size max_tokens mini_batch mini_batch_words "
    "batch_tokens train_batch_size per_device_train_batch_size batch_type mini_batch_fit "
    "maxi_batch",
    "trainer.max_epochs=EPOCHS": "epochs epoch num_epochs n_epochs max_epoch num_train_epochs "
    "after_epochs max_num_epochs",
    "trainer.max_steps=STEPS": "steps train_steps max_update max_updates after_batches updates "
    "num_steps max_training_steps total_steps iterations",
    "trainer.max_minutes=MINUTES": "max_time stop_time_hours max_seconds",
    "trainer.devices=DEVICES": "gpus n_gpu num_gpus world_size gpu_ranks device_ids num_devices "
    "distributed_world_size nproc_per_node",
    "trainer.accelerator=gpu": "gpu cuda use_cuda device use_gpu",
    "trainer.accelerator=cpu": "cpu use_cpu no_cuda",
    "trainer.precision=16-mixed": "fp16 amp half mixed_precision model_dtype",
    "trainer.precision=bf16-mixed": "bf16 bfloat16",
    "trainer.accumulate=BATCHES": "update_freq accum_count gradient_accumulation_steps "
    "gradient_accumulation optimizer_delay update_interval batch_multiplier "
    "accumulate_grad_batches grad_accum",
    "trainer.gradient_clip=NORM": "clip_norm max_grad_norm clip_grad_norm gradient_clip_val clip "
    "gradient_clipping_threshold grad_clip",
    "trainer.label_smoothing=SHARE": "smoothing label_smoothing_factor",
    "trainer.validate_every=STEPS": "valid_steps valid_freq validation_freq validate_interval "
    "validate_interval_updates eval_steps eval_every val_check_interval checkpoint_interval",
    "trainer.save_every=STEPS": "save_steps save_freq save_interval save_interval_updates "
    "save_checkpoint_steps",
    "trainer.keep=CHECKPOINTS": "keep_checkpoint keep_last_epochs keep_last_params "
    "keep_interval_updates save_total_limit keep_best_ckpts",
    "trainer.log_every=STEPS": "log_interval logging_steps logging_freq report_every disp_freq",
    "trainer.patience=VALIDATIONS": "early_stopping early_stopping_patience "
    "max_num_checkpoint_not_improved",
    "trainer.threads=THREADS": "cpu_threads num_threads n_threads",
    "trainer.averaging.kind=ema": "exponential_smoothing average_decay ema",
    "trainer.wandb=true": "wandb_project report_to",
    "optimizer.learning_rate=RATE": "lr learn_rate initial_learning_rate",
    "optimizer=adamw": "optim optimizer_type adam",
    "optimizer.weight_decay=DECAY": "wd l2",
    "schedule.warmup_steps=STEPS": "warmup warmup_updates lr_warmup learning_rate_warmup "
    "lr_warmup_updates warmup_init_steps num_warmup_steps",
    "schedule=inverse_sqrt": "lr_scheduler lr_scheduler_type decay_method scheduling "
    "learning_rate_scheduler_type lr_decay scheduler",
    "search.beam_size=BEAMS": "beam beams num_beams beam_width",
    "search.alpha=ALPHA": "lenpen length_penalty_alpha normalize beam_alpha",
    "search.n_best=TRANSLATIONS": "nbest num_return_sequences n_best",
    "search=sample": "sampling do_sample random_sampling",
    "data.max_length=PIECES": "max_len max_seq_len max_sent_length max_source_positions "
    "max_target_positions max_source_length max_target_length src_seq_length tgt_seq_length "
    "max_sentence_length",
    "model.d_model=SIZE": "hidden_size hidden_dim emb_size embedding_size embedding_dim dim_emb "
    "word_vec_size rnn_size enc_hid_size num_embed encoder_embed_dim decoder_embed_dim "
    "transformer_model_size d_embed",
    "model.d_ff=SIZE": "ff_size ffn_dim dim_feedforward transformer_ff transformer_dim_ffn "
    "encoder_ffn_embed_dim decoder_ffn_embed_dim feed_forward_num_hidden intermediate_size",
    "model.num_heads=HEADS": "heads nhead n_heads attention_heads encoder_attention_heads "
    "decoder_attention_heads transformer_heads transformer_attention_heads num_attention_heads",
    "model.encoder_layers=LAYERS model.decoder_layers=LAYERS": "layers num_layers n_layers "
    "enc_layers dec_layers enc_depth dec_depth num_encoder_layers num_decoder_layers",
    "model.dropout=RATE": "dropout_rate transformer_dropout rnn_dropout embed_dropout",
    "model.tied_embeddings=all": "share_all_embeddings share_embeddings tied_embeddings_all "
    "weight_tying_type share_decoder_embeddings share_input_output_embed tied_softmax",
    "model=transformer": "arch architecture encoder_type decoder_type",
    "data.source=LANGUAGE": "src source_lang src_lang source_language src_language",
    "data.target=LANGUAGE": "tgt trg target_lang tgt_lang trg_lang target_language tgt_language",
    "data=files data.train=PREFIX": "train_src train_tgt path_src path_tgt trainpref train_sets "
    "training_source training_target prepared_data train_file train_data dataset_name",
    "data.dev=PREFIX": "validpref valid_src valid_tgt valid valid_sets validation_source dev_path "
    "validation_target validation_file val",
    "data.test=PREFIX": "testpref test_src test_tgt test_file",
    "data.dir=FOLDER": "data_dir data_path datadir",
    "data.workers=PROCESSES": "num_workers dataloader_num_workers",
    "tokenizer.vocab_size=PIECES": "src_vocab_size tgt_vocab_size voc_limit dim_vocabs num_words "
    "nwordssrc nwordstgt bpe_size bpe_codes vocabulary_size num_merges bpe",
    "tokenizer.pretrained=RUN": "src_vocab tgt_vocab vocab vocabs srcdict tgtdict source_vocab "
    "target_vocab tokenizer_name sentencepiece_model",
    "tokenizer.joint=true": "share_vocab shared_vocab joined_dictionary joint_vocab share_dict",
    "run=FOLDER": "save_dir model_dir save_model output_dir destdir checkpoint_dir "
    "default_root_dir logdir log_dir work_dir",
    "init=RUN": "restore_file finetune_from_model load_model pretrained_model train_from params "
    "from_pretrained model_name_or_path",
    "run=FOLDER (a run that is there goes on by itself)": "resume resume_from_checkpoint "
    "from_checkpoint ckpt_path reset_optimizer",
    "seed=NUMBER": "random_seed rng_seed manual_seed",
}
BY_NAME = {name: setting for setting, names in NAMES.items() for name in names.split()}


def meant(key: str, known: Collection[str]) -> str | None:
    """Return the setting that another toolkit's name stands for; None for an unknown name.

    Args:
        key: as it was typed: `batch_size`, `trainer.gpus` or `--max-epoch`.
        known: groups of the command (`trainer`), and keys that stand in none.
    """
    name = key.lstrip("-").rpartition(".")[2].lower().replace("-", "_")
    setting = BY_NAME.get(name)
    return setting if setting and setting.partition("=")[0].partition(".")[0] in known else None
