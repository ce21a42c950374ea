"""Pictures of attention and of training, as files and in the terminal.

`attention` draws heatmaps and `attention_page` a page to explore them, `curves` learning curves,
`lengths` BLEU by sentence length, `page` and `charts` reports in HTML, `terminal` tables and a
heatmap out of characters; `figure` is what the drawn ones share.
Importing any of them is cheap: matplotlib and rich are loaded by the first picture.
"""
